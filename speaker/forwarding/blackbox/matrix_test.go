package blackbox_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// moreServices are kinds that the tables in desired.Port do not tell apart.
func moreServices() []blackbox.Service {
	return []blackbox.Service{
		{Name: "ports-differ", N: 11, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Anywhere = true
			p.Cluster = slices.Concat(blackbox.At(blackbox.ServePort, a.P1, a.P3), blackbox.At(blackbox.SecondPort, a.P2))
		}},
		{Name: "on-the-node", N: 12, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Anywhere = true
			p.Cluster = slices.Concat(blackbox.At(blackbox.ServePort, a.P3), blackbox.At(blackbox.HostPort, a.Node))
		}},
		{Name: "on-the-node-local", N: 13, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Anywhere, p.ExternalLocal, p.InternalLocal = true, true, true
			p.Cluster = slices.Concat(blackbox.At(blackbox.ServePort, a.P2), blackbox.At(blackbox.HostPort, a.Node))
			p.Local = blackbox.At(blackbox.HostPort, a.Node)
		}},
		{Name: "not-in-the-cluster", N: 14, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.HostPort, a.Client), true
		}},
		{Name: "on-other-nodes", N: 15, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.HostPort, a.Other), true
		}},
		{Name: "all-local", N: 16, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Anywhere, p.ExternalLocal, p.InternalLocal = true, true, true
			p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P2, a.P3), blackbox.At(blackbox.ServePort, a.P1, a.P2)
		}},
		{Name: "all-elsewhere", N: 17, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Anywhere, p.ExternalLocal, p.InternalLocal = true, true, true
			p.Cluster = blackbox.At(blackbox.ServePort, a.P3)
		}},
		{Name: "admits-the-node", N: 18, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1), true
			p.Restricted, p.SourceRanges = true, []netip.Prefix{addr.HostPrefix(a.Node)}
		}},
		{Name: "admits-pods", N: 19, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P3), blackbox.At(blackbox.ServePort, a.P1)
			p.Anywhere, p.ExternalLocal = true, true
			p.Restricted, p.SourceRanges = true, []netip.Prefix{a.Pods}
		}},
		{Name: "admits-many", N: 20, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P2), blackbox.At(blackbox.ServePort, a.P1, a.P2)
			p.Anywhere, p.ExternalLocal = true, true
			p.Restricted, p.SourceRanges = true, []netip.Prefix{a.Crowd, addr.HostPrefix(a.P2), a.Nobody, addr.HostPrefix(blackbox.Nth(a.VIPs, 200)), addr.HostPrefix(blackbox.Nth(a.VIPs, 201))}
		}},
		{Name: "admits-nobody", N: 21, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere, p.Restricted = blackbox.At(blackbox.ServePort, a.P1), true, true
		}},
		{Name: "admits-many-lengths", N: 23, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1), true
			p.Restricted, p.SourceRanges = true, []netip.Prefix{a.Crowd, addr.HostPrefix(a.P2)}
			for n := 1; n < 8; n++ {
				p.SourceRanges = append(p.SourceRanges, netip.PrefixFrom(blackbox.Nth(a.Nobody, 1<<(8-n)), a.Node.BitLen()-8+n))
			}
		}},
		{Name: "sticky", N: 22, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P2, a.P3), blackbox.At(blackbox.ServePort, a.P1, a.P2)
			p.Anywhere, p.ExternalLocal, p.Affinity = true, true, time.Hour
		}},
		// The VIPs of these are addresses of the node, too.
		{Name: "bound", N: blackbox.FirstBound, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1, a.P3), true
		}},
		{Name: "bound-local", N: blackbox.FirstBound + 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P3), blackbox.At(blackbox.ServePort, a.P1)
			p.Anywhere, p.ExternalLocal = true, true
		}},
		{Name: "bound-empty", N: blackbox.FirstBound + 2, Fill: func(_ blackbox.Addresses, _ *desired.Port) {}},
	}
}

// everyKind has a Service of every kind, each with all four kinds of destinations.
func everyKind() desired.Forwarding {
	want := blackbox.Forwarding(slices.Concat(blackbox.Services(), moreServices())...)
	for key, p := range want.Ports {
		last := p.ClusterIP.AsSlice()
		p.ExternalIPs = []netip.Addr{blackbox.Nth(blackbox.Plan(key.Family).ExternalIPs, last[len(last)-1])}
		want.Ports[key] = p
	}
	return want
}

// TestEveryoneToEverything sends from every kind of sender to every kind of
// destination of every kind of Service, over TCP and UDP, in both families, and
// sees who answers, whom he sees, and how it is refused.
func TestEveryoneToEverything(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := everyKind()
		c.Apply(want)
		var all asking
		for key, p := range want.Ports {
			a := blackbox.Plan(key.Family)
			for _, s := range c.senders(key.Family) {
				for _, to := range []netip.AddrPort{
					netip.AddrPortFrom(p.ClusterIP, p.Port), netip.AddrPortFrom(p.VIPs[0], p.Port),
					netip.AddrPortFrom(p.ExternalIPs[0], p.Port), netip.AddrPortFrom(a.Node, p.NodePort),
				} {
					all.add(func() error { return c.expect(s, key.Protocol, to, want) })
				}
			}
		}
		all.report(t)
	})
}

// TestClusterIPsAlone asks for Services that nothing but a ClusterIP leads to, as most are: backends
// need not keep apart what is reached in one way only.
func TestClusterIPsAlone(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := everyKind()
		for key, p := range want.Ports {
			p.VIPs, p.ExternalIPs, p.NodePort = nil, nil, 0
			want.Ports[key] = p
		}
		c.Apply(want)
		var all asking
		for key, p := range want.Ports {
			for _, s := range c.senders(key.Family) {
				for _, port := range []uint16{p.Port, p.Port + 1} {
					all.add(func() error { return c.expect(s, key.Protocol, netip.AddrPortFrom(p.ClusterIP, port), want) })
				}
			}
		}
		all.report(t)
	})
}

// TestOthersTrafficIsUntouched sends to what is of no Service: other ports of
// Services' addresses, NodePorts on addresses where they do not answer, pods and
// hosts.
func TestOthersTrafficIsUntouched(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := everyKind()
		c.Apply(want)
		var all asking
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, s := range c.senders(f) {
				for _, to := range []netip.AddrPort{
					netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, 1), 81),
					netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, 200), 80),
					netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 30001),
					netip.AddrPortFrom(a.Node, 80),
					netip.AddrPortFrom(a.Node, blackbox.HostPort),
					netip.AddrPortFrom(a.Aside, 30001),
					netip.AddrPortFrom(a.Other, 30001),
					netip.AddrPortFrom(a.Bound[0], 30001),
					netip.AddrPortFrom(a.Bound[1], blackbox.HostPort),
					netip.AddrPortFrom(a.P1, blackbox.ServePort),
					netip.AddrPortFrom(a.P3, blackbox.ServePort),
					netip.AddrPortFrom(a.P3, 80),
					netip.AddrPortFrom(a.Client, blackbox.HostPort),
				} {
					for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
						all.add(func() error { return c.expect(s, protocol, to, want) })
					}
				}
			}
		}
		all.report(t)
	})
}

// asking is many questions, asked side by side but not all at once.
type asking struct{ questions []func() error }

func (a *asking) add(question func() error) { a.questions = append(a.questions, question) }

// report asks and fails the test for each answer that is not as expected.
func (a *asking) report(t testing.TB) {
	t.Helper()
	if err := a.all(); err != nil {
		t.Error(err)
	}
}

func (a *asking) all() error {
	errs := make([]error, len(a.questions))
	var group errgroup.Group
	group.SetLimit(128) // most of them wait for silence
	for i, question := range a.questions {
		group.Go(func() error {
			errs[i] = question()
			return nil
		})
	}
	_ = group.Wait() // each keeps its own error
	return errors.Join(errs...)
}
