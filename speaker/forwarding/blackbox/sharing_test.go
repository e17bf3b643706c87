package blackbox_test

import (
	"maps"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// sharing are three Services on one VIP: "tcp" and "udp" have one port number, and "udp"
// and "web" have policy Local.
func sharing() desired.Forwarding {
	const vip = 1
	want := blackbox.Forwarding(
		blackbox.Service{Name: "tcp", N: vip, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P2, a.P3), true
		}},
		blackbox.Service{Name: "udp", N: 2, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P3), blackbox.At(blackbox.ServePort, a.P1)
			p.ExternalLocal, p.Anywhere, p.VIPs = true, true, []netip.Addr{blackbox.Nth(a.VIPs, vip)}
		}},
		blackbox.Service{Name: "web", N: 3, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local = blackbox.At(blackbox.SecondPort, a.P2), blackbox.At(blackbox.SecondPort, a.P2)
			p.ExternalLocal, p.Port, p.VIPs = true, 443, []netip.Addr{blackbox.Nth(a.VIPs, vip)}
		}},
	)
	for _, f := range addr.Families() {
		delete(want.Ports, blackbox.Key("tcp", view.UDP, f))
		delete(want.Ports, blackbox.Key("udp", view.TCP, f))
	}
	return want
}

// TestSharedVIP holds that each Service on one VIP gets the packets for its ports, by its
// own policy, and that they do not disturb each other as they come, change and go.
func TestSharedVIP(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := sharing()
		without := func(service string) desired.Forwarding {
			rest := want
			rest.Ports = maps.Clone(want.Ports)
			maps.DeleteFunc(rest.Ports, func(key desired.PortKey, _ desired.Port) bool { return key.Service.Name == service })
			return rest
		}
		check := func(when string, now desired.Forwarding) {
			t.Helper()
			for turn := range 3 {
				if err := c.askAbout(turn, now, want); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
		}
		c.Apply(without("udp"))
		check("before the third Service", without("udp"))
		c.Apply(want)
		check("all three", want)
		c.sharedByPolicy(t)
		flows := c.establish(want)

		changed := without("")
		for _, f := range addr.Families() {
			p := changed.Ports[blackbox.Key("udp", view.UDP, f)]
			p.Local, p.ExternalLocal = nil, false
			changed.Ports[blackbox.Key("udp", view.UDP, f)] = p
		}
		c.Apply(changed)
		check("one has policy Cluster now", changed)
		if err := live(flows); err != nil {
			t.Errorf("one has policy Cluster now: %v", err)
		}
		c.Apply(want)
		for _, gone := range []string{"tcp", "udp", "web"} {
			c.Apply(without(gone))
			check(gone+" is gone", without(gone))
			c.Apply(want)
		}
		check("all are back", want)
	})
}

// sharedByPolicy asks from outside, and looks at who answers and what he sees, without
// the oracle.
func (c *cluster) sharedByPolicy(t *testing.T) {
	t.Helper()
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		client, vip := c.senders(f)[0], blackbox.Nth(a.VIPs, 1)
		for _, expected := range []struct {
			protocol view.Protocol
			port     uint16
			answer   answer
			also     string
		}{
			{view.TCP, 80, answer{"p2", blackbox.ServePort, true}, "p3"},
			{view.UDP, 80, answer{"p1", blackbox.ServePort, false}, ""},
			{view.TCP, 443, answer{"p2", blackbox.SecondPort, false}, ""},
			{view.UDP, 443, answer{"p2", blackbox.SecondPort, false}, ""},
		} {
			got, err := ask(client, expected.protocol, netip.AddrPortFrom(vip, expected.port), answerIn)
			seen := answer{got.Server, got.Port, got.Seen != client.from.String()}
			if seen.server == expected.also {
				seen.server = expected.answer.server
			}
			if err != nil || seen != expected.answer {
				t.Errorf("%s %s:%d from outside: %s, want %+v", expected.protocol, vip, expected.port, said(got, err), expected.answer)
			}
		}
	}
}

// TestAGuestTakesNoPort holds that of two Services of different namespaces with one port of a VIP the one whose
// namespace had it first gets the packets, whatever their names and endpoints: the controller is yet to settle it.
func TestAGuestTakesNoPort(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		two := func(serves bool) desired.Forwarding {
			return blackbox.Forwarding(
				blackbox.Service{Name: "first", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
					if serves {
						p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P2), true
					}
				}},
				blackbox.Service{Name: "evil", N: 2, Fill: func(a blackbox.Addresses, p *desired.Port) {
					vip := []netip.Addr{blackbox.Nth(a.VIPs, 1)}
					p.Cluster, p.Anywhere, p.VIPs, p.Guest = blackbox.At(blackbox.ServePort, a.P1), true, vip, vip
				}},
			)
		}
		for _, serves := range []bool{true, false, true} {
			c.Apply(two(serves))
			for _, f := range addr.Families() {
				at := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, 1), 80)
				for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
					got, err := ask(c.senders(f)[0], protocol, at, answerIn)
					if serves != (err == nil) || serves && got.Server != "p2" {
						t.Errorf("%s %s, which the first one serves: %t: %s", protocol, at, serves, said(got, err))
					}
				}
			}
		}
	})
}
