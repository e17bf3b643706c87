package flags

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
)

func TestConnectionTable(t *testing.T) {
	for args, want := range map[string]sysctl.Want{
		"": {},
		"--conntrack-max-per-core=32768 --conntrack-min=131072 --conntrack-tcp-timeout-established=24h --conntrack-tcp-timeout-close-wait=1h": {
			MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour,
		},
		"--conntrack-tcp-be-liberal=true --conntrack-udp-timeout=45s --conntrack-udp-timeout-stream=0": {TCPBeLiberal: true, UDP: 45 * time.Second},
	} {
		if got, err := connectionsBy(args); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", args, got, err, want)
		}
	}
	for _, args := range []string{
		"--conntrack-max-per-core=-1", "--conntrack-min=-1", "--conntrack-tcp-timeout-established=-1s",
		"--conntrack-tcp-timeout-close-wait=1500ms", "--conntrack-udp-timeout=1ms", "--conntrack-udp-timeout-stream=1s1ns",
	} {
		name, _, _ := strings.Cut(args, "=")
		if _, err := connectionsBy(args); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error that names the flag", args, err)
		}
	}
}

func connectionsBy(args string) (sysctl.Want, error) {
	var c connections
	flags := flag.NewFlagSet("speaker", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	c.register(flags)
	if err := flags.Parse(strings.Fields(args)); err != nil {
		return sysctl.Want{}, err
	}
	return c.parse()
}
