package blackbox_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestEndpointOnTheDiscardPort has a process of this node serve a Service on the port of RFC 863, or on that and the next
// one, as relays of Wake-on-LAN do: what the Service gets is answered, and what nobody serves is refused, and not led there.
func TestEndpointOnTheDiscardPort(t *testing.T) {
	const discard = 9
	eachBackend(t, func(t *testing.T, c *cluster) {
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			c.Node.ServeAt("node", netip.AddrPortFrom(a.Node, discard))
			c.Node.ServeAt("node", netip.AddrPortFrom(a.Node, discard+1))
		}
		for _, ports := range [][]uint16{{discard}, {discard, discard + 1}, {discard + 1}, nil} {
			want := announced()
			for _, f := range addr.Families() {
				a, key := blackbox.Plan(f), blackbox.Key("cluster", view.UDP, f)
				p := want.Ports[key]
				p.Cluster = nil
				for _, port := range ports {
					p.Cluster = append(p.Cluster, netip.AddrPortFrom(a.Node, port))
				}
				p.Anywhere = len(p.Cluster) > 0
				want.Ports[key] = p
			}
			c.Apply(want)
			var all asking
			for _, f := range addr.Families() {
				a, p := blackbox.Plan(f), want.Ports[blackbox.Key("cluster", view.UDP, f)]
				for _, s := range c.senders(f) {
					for _, to := range []netip.AddrPort{
						netip.AddrPortFrom(p.ClusterIP, p.Port), netip.AddrPortFrom(p.VIPs[0], p.Port), netip.AddrPortFrom(a.Node, p.NodePort),
					} {
						all.add(func() error { return c.expect(s, view.UDP, to, want) })
					}
					for _, to := range []netip.AddrPort{
						netip.AddrPortFrom(p.VIPs[0], 81), netip.AddrPortFrom(blackbox.Nth(a.VIPs, vipEmpty), 80), netip.AddrPortFrom(blackbox.Nth(a.Nobody, 5), 80),
					} {
						all.add(func() error {
							if _, err := ask(s, view.UDP, to, answerIn); !errors.Is(err, netlab.ErrRefused) {
								return fmt.Errorf("with endpoints on %v: %s (%s) -> %s: %w, want refused", ports, s.name, s.from, to, err)
							}
							return nil
						})
					}
				}
			}
			all.report(t)
		}
	})
}
