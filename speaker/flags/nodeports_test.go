package flags

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodePortAddresses(t *testing.T) {
	for text, want := range map[string]nodePortAddresses{
		"":                           {},
		"primary":                    {primary: true},
		"localhost":                  {cidrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		" primary, localhost ":       {primary: true, cidrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		"127.0.0.1/32,192.0.2.77/24": {cidrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("192.0.2.0/24")}},
	} {
		got, err := parseNodePortAddresses(text)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(nodePortAddresses{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"all", "localhost,Primary", "127.0.0.1", "192.0.2.0/33"} {
		wrong := text[strings.LastIndex(text, ",")+1:]
		if _, err := parseNodePortAddresses(text); err == nil || !strings.Contains(err.Error(), `"`+wrong+`"`) {
			t.Errorf("%q: error %v, want one that names %q", text, err, wrong)
		}
	}
}

// What IPv6 cannot do is told, once, and nothing else.
func TestLoopbackOfIPv6IsTold(t *testing.T) {
	for text, want := range map[string]int{"::1/128,127.0.0.0/8": 1, "localhost,::/0": 0, "": 0} {
		a, err := parseNodePortAddresses(text)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		a.warn(slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Count(log.String(), "::1"); got != want {
			t.Errorf("%q: told %d times, want %d: %s", text, got, want, log.String())
		}
	}
}
