package blackbox_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// established are flows of all kinds, opened once, with what was answered then.
type established struct {
	flow  *netlab.Conn
	what  string
	first netlab.Answer
}

// establish opens flows from everyone, to every kind of destination of the first
// Services that serve the sender.
func (c *cluster) establish(want desired.Forwarding) []established {
	c.t.Helper()
	c.keepRestingFlows()
	var flows []established
	for _, f := range addr.Families() {
		o := oracle{blackbox.Plan(f), want}
		for i, s := range c.senders(f) {
			for protocol, all := range destinations(f, []desired.Forwarding{want}) {
				for j, to := range all {
					verdict, ours := o.verdict(question{protocol, s.from, to})
					if !ours || verdict.err != nil || (i+j)%3 > 0 {
						continue
					}
					what := fmt.Sprintf("%s: %s -> %s", protocol, s.name, to)
					flow, err := s.dial(protocol, to, answerIn)
					if err != nil {
						c.t.Fatalf("%s: %v", what, err)
					}
					c.t.Cleanup(flow.Close)
					first, err := flow.Ask()
					if err != nil {
						c.t.Fatalf("%s: %v", what, err)
					}
					flows = append(flows, established{flow, what, first})
				}
			}
		}
	}
	return flows
}

// live asks again on each flow and returns which do not answer as at first.
func live(flows []established) error {
	var all asking
	for _, e := range flows {
		all.add(func() error {
			if got, err := e.flow.Ask(); err != nil || got != e.first {
				return fmt.Errorf("%s: %s, want %s", e.what, said(got, err), said(e.first, nil))
			}
			return nil
		})
	}
	return all.all()
}

// keepTranslating has the node translate the packets of open flows though somebody flushes
// our rules, as it does where network plugins have rules of their own: without any, it
// has no connection table. On a busy machine some packet always comes before the repair.
func (c *cluster) keepTranslating() {
	c.t.Helper()
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		c.Run(program, "-t", "mangle", "-A", "PREROUTING", "-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "ACCEPT")
		c.Run(program, "-t", "nat", "-S") // makes the table
	}
}

// TestFlowsOutliveChanges holds flows of all kinds open over changes of other
// Services, of their own, over a restart, and over a flush of all rules and their
// repair.
func TestFlowsOutliveChanges(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		services := func() []blackbox.Service { return slices.Concat(blackbox.Services(), moreServices()) }
		want := blackbox.Forwarding(services()...)
		c.Apply(want)
		flows := c.establish(want)
		if len(flows) < 100 {
			t.Fatalf("%d flows are open, want more", len(flows))
		}
		fill := func(n int, fill func(a blackbox.Addresses, p *desired.Port)) func() {
			return func() {
				changed := services()
				changed[n].Fill = fill
				c.Apply(blackbox.Forwarding(changed...))
			}
		}
		for _, change := range []struct {
			name string
			do   func()
		}{
			{"another Service comes", func() {
				c.Apply(blackbox.Forwarding(append(services(), blackbox.Service{Name: "new", N: 40, Fill: func(a blackbox.Addresses, p *desired.Port) {
					p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1), true
				}})...))
			}},
			{"and goes", func() { c.Apply(want) }},
			{"an endpoint comes", fill(2, func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere, p.ExternalLocal = blackbox.At(blackbox.ServePort, a.P2, a.P3), true, true
			})},
			{"all endpoints of one go", fill(0, func(blackbox.Addresses, *desired.Port) {})},
			{"the policy of one becomes Local", fill(0, func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P3), blackbox.At(blackbox.ServePort, a.P1)
				p.ExternalLocal, p.InternalLocal, p.Anywhere = true, true, true
			})},
			{"one admits nobody any more", fill(4, func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere, p.Restricted = blackbox.At(blackbox.ServePort, a.P2), true, true
			})},
			{"pods and NodePorts are others", func() {
				changed := blackbox.Forwarding(services()...)
				changed.Pods, changed.NodePorts = nil, nil
				c.Apply(changed)
			}},
			{"a restart", func() { c.Restart(); c.Apply(want) }},
			{"somebody flushes all rules", func() {
				c.keepTranslating()
				c.Run("sh", "-c", c.flush)
				c.Apply(want)
			}},
			{"no Service is left", func() { c.Apply(desired.Forwarding{Pods: want.Pods, NodePorts: want.NodePorts}) }},
			{"all are back", func() { c.Apply(want) }},
		} {
			change.do()
			if err := live(flows); err != nil {
				t.Errorf("after %q: %v", change.name, err)
			}
		}
		if err := c.askAbout(0, want); err != nil {
			t.Errorf("new flows afterwards: %v", err)
		}
	})
}

// TestNothingLeaksThroughChanges asks without a pause while Services, this one's
// endpoints and the backend itself change. There always is an endpoint, so each
// question must be answered by one, without being sent again; a packet that got past the rules would be
// answered by the leak, which has the addresses of the Service.
func TestNothingLeaksThroughChanges(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		serving := func(endpoints func(a blackbox.Addresses) []netip.Addr, others ...blackbox.Service) {
			c.Apply(blackbox.Forwarding(append(others, blackbox.Service{Name: "web", N: 40, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, endpoints(a)...), true
			}})...))
		}
		some := []func(a blackbox.Addresses) []netip.Addr{
			func(a blackbox.Addresses) []netip.Addr { return []netip.Addr{a.P1} },
			func(a blackbox.Addresses) []netip.Addr { return []netip.Addr{a.P1, a.P2, a.P3} },
			func(a blackbox.Addresses) []netip.Addr { return []netip.Addr{a.P2} },
		}
		serving(some[0])
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, ip := range []netip.Addr{blackbox.Nth(a.VIPs, 40), blackbox.Nth(a.ClusterIPs, 40)} {
				c.Other.Addr("peer", addr.HostPrefix(ip).String())
				c.Other.ServeAt("leak", netip.AddrPortFrom(ip, 80))
				c.Node.Route(addr.HostPrefix(ip).String(), a.Other.String(), "peer")
			}
		}
		var asked atomic.Int64
		done := make(chan struct{})
		group, failed := errgroup.WithContext(t.Context())
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, s := range []sender{c.senders(f)[0], c.senders(f)[2], c.senders(f)[4]} { // client, node, p1
				group.Go(func() error {
					for i := 0; ; i++ {
						select {
						case <-done:
							return nil
						default:
						}
						protocol := []view.Protocol{view.TCP, view.UDP}[i%2]
						to := netip.AddrPortFrom([]netip.Addr{blackbox.Nth(a.VIPs, 40), blackbox.Nth(a.ClusterIPs, 40)}[i/2%2], 80)
						got, err := askOnce(s, protocol, to, answerIn)
						if err != nil || got.Server == "leak" {
							return fmt.Errorf("%s: %s -> %s: %s", protocol, s.name, to, said(got, err))
						}
						asked.Add(1)
					}
				})
			}
		}
		// Until it has been tried often enough, on a busy machine too.
		for i := 0; i < 24 || asked.Load() < 100 && failed.Err() == nil; i++ {
			if i%8 == 7 {
				c.Restart()
			}
			serving(some[i%3], slices.Concat(blackbox.Services(), moreServices())[:i%24]...)
		}
		close(done)
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestEndpointsComeAndGo follows a Service from no endpoints to one, to another, to none.
func TestEndpointsComeAndGo(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			ask := func(endpoints ...netip.Addr) (netlab.Answer, error) {
				c.Apply(blackbox.Forwarding(blackbox.Service{Name: "web", N: 1, Fill: func(of blackbox.Addresses, p *desired.Port) {
					if of.Family == f {
						p.Cluster = blackbox.At(blackbox.ServePort, endpoints...)
					}
				}}))
				flow, err := c.Client.Dial("udp", netip.AddrPort{}, netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), answerIn)
				if err != nil {
					return netlab.Answer{}, err
				}
				t.Cleanup(flow.Close) // not before, lest a later one get its port and go where it went
				return flow.Ask()
			}
			for _, step := range []struct {
				endpoint netip.Addr
				server   string
			}{{a.P1, "p1"}, {a.P3, "p3"}, {a.P2, "p2"}} {
				if got, err := ask(step.endpoint); err != nil || got.Server != step.server {
					t.Errorf("%s: %v, %v, want an answer of %s", f, got, err, step.server)
				}
				if _, err := ask(); !errors.Is(err, netlab.ErrRefused) {
					t.Errorf("%s: no endpoints: %v, want a refusal", f, err)
				}
			}
		}
	})
}

// TestShares holds that each endpoint gets its share of new flows.
func TestShares(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
		var mutex sync.Mutex
		answers := map[string]int{}
		var all asking
		for range 300 {
			for _, f := range addr.Families() {
				for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
					all.add(func() error {
						got, err := ask(c.senders(f)[0], protocol, netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, 1), 80), answerIn)
						mutex.Lock()
						defer mutex.Unlock()
						answers[fmt.Sprint(f, protocol, got.Server)]++
						answers[got.Server]++
						return err
					})
				}
			}
		}
		all.report(t)
		for server, n := range answers {
			expected := 100.
			if slices.Contains([]string{"p1", "p2", "p3"}, server) {
				expected = 400
			}
			// Six times the standard deviation is never seen by chance: once in ten million
			// runs in one of the 45 numbers.
			if off := math.Abs(float64(n) - expected); off > 6*math.Sqrt(expected*2/3) {
				t.Errorf("%s got %d flows, want about %.0f", server, n, expected)
			}
		}
		if len(answers) != 15 {
			t.Errorf("not all endpoints got flows: %v", answers)
		}
	})
}
