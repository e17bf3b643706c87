package addr_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.0/24":               "192.0.2.0-192.0.2.255",
		" 192.0.2.7/32 ":             "192.0.2.7-192.0.2.7",
		"192.0.2.1-192.0.2.1":        "192.0.2.1-192.0.2.1",
		"192.0.2.1 - 192.0.2.9":      "192.0.2.1-192.0.2.9",
		"2001:db8::/127":             "2001:db8::-2001:db8::1",
		"2001:db8::1-2001:db8::ffff": "2001:db8::1-2001:db8::ffff",
		"192.0.2.9-192.0.2.1":        "error: reversed: write 192.0.2.1-192.0.2.9",
		"192.0.2.1/24":               "error: host bits set: write 192.0.2.0/24",
		"192.0.2.1-2001:db8::1":      "error: two families",
		"192.0.2.1":                  "error: neither a CIDR nor a range",
		"":                           "error: neither",
		"192.0.2.1-":                 `error: "" is not an IP address`,
		"192.0.2.300-192.0.2.301":    `error: "192.0.2.300" is not an IP address`,
		"fe80::1%eth0-fe80::2%eth0":  "error: without zone",
		"::ffff:192.0.2.0/120":       "error: write the IPv4 address itself",
		"::ffff:192.0.2.1-192.0.2.2": "error: IPv4 mapping",
		"192.0.2.0/33":               "error: neither",
		"192.0.2.1-192.0.2.2-x":      "error: not an IP address",
		"0.0.0.0/0":                  "0.0.0.0-255.255.255.255",
		"192.0.2.1-192.0.2.2/32":     "error: not an IP address",
	} {
		r, err := addr.ParseRange(text)
		if wrong, isError := strings.CutPrefix(want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("ParseRange(%q) = %v, %v, want an error with %q", text, r, err, wrong)
			}
			continue
		}
		if err != nil || r.String() != want {
			t.Errorf("ParseRange(%q) = %v, %v, want %s", text, r, err, want)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"192.0.2.0/24", "192.0.2.1-192.0.2.9", "2001:db8::/64", "a-b", "-", "/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := addr.ParseRange(text)
		if err != nil {
			return
		}
		if !r.IsValid() || r.From().Zone() != "" || r.From().Is4In6() || r.To().Is4In6() {
			t.Fatalf("ParseRange(%q) admits %v", text, r)
		}
		if again, err := addr.ParseRange(r.String()); err != nil || again != r {
			t.Fatalf("ParseRange(%q) prints as %s, which reads as %v, %v", text, r, again, err)
		}
	})
}

func TestSummarizeCoversTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var prefixes []netip.Prefix
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			a := netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "host")})
			prefixes = append(prefixes, netip.PrefixFrom(a, rapid.IntRange(24, 32).Draw(t, "bits")).Masked())
		}
		short := addr.Summarize(prefixes)
		contains := func(list []netip.Prefix, a netip.Addr) int {
			n := 0
			for _, p := range list {
				if p.Contains(a) {
					n++
				}
			}
			return n
		}
		for host := range 256 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(host)})
			if in := contains(short, a); (contains(prefixes, a) > 0) != (in == 1) || in > 1 {
				t.Fatalf("%v summarized as %v: %s is in %d of them", prefixes, short, a, in)
			}
		}
	})
}

func TestFamilies(t *testing.T) {
	for text, want := range map[string]string{"192.0.2.1": "IPv4 192.0.2.1/32", "2001:db8::1": "IPv6 2001:db8::1/128"} {
		a := netip.MustParseAddr(text)
		if got := fmt.Sprintf("%s %s", addr.FamilyOf(a), addr.HostPrefix(a)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
