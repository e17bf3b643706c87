package blackbox_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestEcho pings. A Service has ports and no host: nobody answers for it but a node that has
// its address as one of its own, and no endpoint is asked. A ClusterIP refuses at once, and an
// address of nobody in the range of ClusterIPs is silent, as with any port that is not there.
// Pods and hosts answer as ever.
func TestEcho(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := everyKind()
		for _, f := range addr.Families() {
			want.ServiceRanges = append(want.ServiceRanges, blackbox.Plan(f).ClusterIPs)
		}
		c.Apply(want)
		var all asking
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for to, answer := range map[netip.Addr]error{
				blackbox.Nth(a.ClusterIPs, 1):   netlab.ErrRefused,
				blackbox.Nth(a.ClusterIPs, 4):   netlab.ErrRefused, // without endpoints
				blackbox.Nth(a.ClusterIPs, 17):  netlab.ErrRefused, // with endpoints on other nodes alone
				blackbox.Nth(a.ClusterIPs, 200): netlab.ErrSilence, // of no Service
				blackbox.Nth(a.VIPs, 1):         netlab.ErrSilence,
				blackbox.Nth(a.VIPs, 5):         netlab.ErrSilence,
				blackbox.Nth(a.ExternalIPs, 1):  netlab.ErrSilence,
				a.Bound[0]:                      nil,
				a.Node:                          nil,
				a.P1:                            nil,
				a.P3:                            nil,
			} {
				for _, s := range c.senders(f) {
					if s.from == to || s.host == c.Node && to == a.Bound[0] {
						continue
					}
					timeout := silenceAfter
					if answer == nil || errors.Is(answer, netlab.ErrRefused) {
						timeout = answerIn
					}
					all.add(func() error {
						if got := ping(s.host, s.from, to, timeout); !errors.Is(got, answer) {
							return fmt.Errorf("%s (%s) -> %s: %w, want %s", s.name, s.from, to, got, fmt.Sprint(answer))
						}
						return nil
					})
				}
			}
		}
		all.report(t)
	})
}
