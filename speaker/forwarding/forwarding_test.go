package forwarding

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

const (
	// answerIn is long enough for any answer on a busy machine.
	answerIn = time.Minute
	// silenceAfter is how long nobody answers for it to be silence.
	silenceAfter = 300 * time.Millisecond
)

// lab is a client, a node and two endpoints, one behind the other's back.
type lab struct {
	t            *testing.T
	client, node *netlab.Host
	backend      *Forwarder
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, client: netlab.NewHost(t, "client"), node: netlab.NewHost(t, "node")}
	l.node.Forward()
	l.plug(l.client, "client", "0")
	for _, n := range []string{"1", "2"} {
		endpoint := netlab.NewHost(t, "e"+n)
		l.plug(endpoint, "e"+n, n)
		endpoint.Serve(8080)
	}
	// What nobody serves goes to the client, which forwards nothing.
	l.node.Route("0.0.0.0/0", "10.0.0.2", "client")
	l.node.Route("::/0", "fd00:0:0:0::2", "client")
	l.backend = l.newBackend()
	return l
}

// plug joins a host to the node on a network of its own.
func (l *lab) plug(h *netlab.Host, name, net string) {
	netlab.Connect(l.node, name, h, "eth0")
	l.node.Addr(name, "10.0."+net+".1/24", "fd00:0:0:"+net+"::1/64")
	h.Addr("eth0", "10.0."+net+".2/24", "fd00:0:0:"+net+"::2/64")
	h.Route("0.0.0.0/0", "10.0."+net+".1", "eth0")
	h.Route("::/0", "fd00:0:0:"+net+"::1", "eth0")
}

func (l *lab) newBackend() *Forwarder {
	var b *Forwarder
	var err error
	l.node.Do(func() { b, err = New(Config{Mode: IPTables, Log: slog.New(slog.DiscardHandler)}) })
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

func (l *lab) apply(want desired.Forwarding) {
	l.t.Helper()
	var missing outcome.Missing
	var err error
	l.node.Do(func() { missing, err = clean(l.t, l.backend, want) })
	if err != nil || len(missing) > 0 {
		l.t.Fatalf("apply: %d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
	}
}

// dial begins a UDP flow of the client.
func (l *lab) dial(to netip.AddrPort) *netlab.Conn {
	l.t.Helper()
	flow, err := l.client.Dial("udp", netip.AddrPort{}, to, answerIn)
	if err != nil {
		l.t.Fatal(err)
	}
	return flow
}

type family struct {
	addr.Family
	vip, other, node netip.Addr
	endpoint         map[string]netip.Addr
}

func families() []family {
	a := netip.MustParseAddr
	return []family{
		{
			addr.IPv4, a("198.51.100.1"), a("198.51.100.2"), a("10.0.0.1"),
			map[string]netip.Addr{"e1": a("10.0.1.2"), "e2": a("10.0.2.2")},
		},
		{
			addr.IPv6, a("2001:db8::1"), a("2001:db8::2"), a("fd00::1"),
			map[string]netip.Addr{"e1": a("fd00:0:0:1::2"), "e2": a("fd00:0:0:2::2")},
		},
	}
}

// want is a UDP Service on a VIP and a NodePort with these endpoints.
func (f family) want(vip netip.Addr, nodePort uint16, endpoints ...string) desired.Forwarding {
	p := desired.Port{VIPs: []netip.Addr{vip}, Port: 53, NodePort: nodePort, Anywhere: len(endpoints) > 0}
	for _, name := range endpoints {
		p.Cluster = append(p.Cluster, netip.AddrPortFrom(f.endpoint[name], 8080))
	}
	p.Serving = p.Cluster
	return desired.Forwarding{
		Ports: map[desired.PortKey]desired.Port{
			{Service: view.Ref{Namespace: "shop", Name: "dns"}, Protocol: view.UDP, Family: f.Family}: p,
		},
		NodePorts: []netip.Prefix{addr.HostPrefix(f.node)},
	}
}

// TestUDPFlowsFollowTheService keeps one UDP flow, of one source port, sending
// while the Service changes under it: it must never be left behind.
func TestUDPFlowsFollowTheService(t *testing.T) {
	l := newLab(t)
	for _, f := range families() {
		none := desired.Forwarding{NodePorts: []netip.Prefix{addr.HostPrefix(f.node)}}
		for name, to := range map[string]netip.AddrPort{
			"VIP": netip.AddrPortFrom(f.vip, 53), "NodePort": netip.AddrPortFrom(f.node, 30053),
		} {
			t.Run(f.String()+" "+name, func(t *testing.T) {
				l.t = t
				l.apply(none)
				flow := l.dial(to)
				defer flow.Close()
				other := f.want(f.other, 30054, "e1")
				for _, step := range []struct {
					name   string
					want   desired.Forwarding
					server string // "" for no answer
				}{
					{"before the Service", none, ""},
					{"the Service comes", f.want(f.vip, 30053, "e1"), "e1"},
					{"another endpoint", f.want(f.vip, 30053, "e2"), "e2"},
					{"no endpoints", f.want(f.vip, 30053), ""},
					{"an endpoint again", f.want(f.vip, 30053, "e1"), "e1"},
					{"other addresses", other, ""},
					{"back", f.want(f.vip, 30053, "e2"), "e2"},
					{"the Service goes", none, ""},
				} {
					l.apply(step.want)
					patience := answerIn
					if step.server == "" {
						patience = silenceAfter
					}
					got, err := flow.AskFor(patience)
					if step.server == "" && err == nil {
						t.Errorf("%s: %s answered, want nobody", step.name, got.Server)
					}
					if step.server != "" && (err != nil || got.Server != step.server) {
						t.Errorf("%s: %v, %v, want an answer of %s", step.name, got, err, step.server)
					}
				}
			})
		}
	}
}

// TestUDPFlowsFollowOverARestart changes the endpoint while no speaker runs.
func TestUDPFlowsFollowOverARestart(t *testing.T) {
	l := newLab(t)
	for _, f := range families() {
		l.apply(f.want(f.vip, 0, "e1"))
		flow := l.dial(netip.AddrPortFrom(f.vip, 53))
		defer flow.Close()
		if got, err := flow.Ask(); err != nil || got.Server != "e1" {
			t.Fatalf("%s: %v, %v, want an answer of e1", f, got, err)
		}
		l.backend = l.newBackend()
		l.apply(f.want(f.vip, 0, "e2"))
		if got, err := flow.Ask(); err != nil || got.Server != "e2" {
			t.Errorf("%s: %v, %v, want an answer of e2", f, got, err)
		}
	}
}

// TestUDPFlowsStayWithTheirEndpoint holds that a flow whose endpoint still
// serves is left alone, whatever else changes.
func TestUDPFlowsStayWithTheirEndpoint(t *testing.T) {
	l := newLab(t)
	f := families()[0]
	both := f.want(f.vip, 0, "e1", "e2")
	l.apply(both)
	flows := map[*netlab.Conn]string{}
	for range 8 {
		flow := l.dial(netip.AddrPortFrom(f.vip, 53))
		defer flow.Close()
		got, err := flow.Ask()
		if err != nil {
			t.Fatal(err)
		}
		flows[flow] = got.Server
	}
	l.apply(f.want(f.vip, 30053, "e1", "e2"))
	l.backend = l.newBackend()
	l.apply(both)
	for flow, server := range flows {
		if got, err := flow.Ask(); err != nil || got.Server != server {
			t.Errorf("%v, %v, want an answer of %s as before", got, err, server)
		}
	}
}

// TestUDPFlowsStayWhileTheirEndpointServes takes an endpoint out of those that
// new flows go to, as when its pod terminates: its flows stay until it is gone.
func TestUDPFlowsStayWhileTheirEndpointServes(t *testing.T) {
	l := newLab(t)
	for _, f := range families() {
		for name, to := range map[string]netip.AddrPort{
			"VIP": netip.AddrPortFrom(f.vip, 53), "NodePort": netip.AddrPortFrom(f.node, 30053),
		} {
			t.Run(f.String()+" "+name, func(t *testing.T) {
				l.t = t
				l.apply(f.want(f.vip, 30053, "e1"))
				old := l.dial(to)
				defer old.Close()
				expect := func(when string, flow *netlab.Conn, server string) {
					t.Helper()
					if got, err := flow.Ask(); err != nil || got.Server != server {
						t.Errorf("%s: %v, %v, want an answer of %s", when, got, err, server)
					}
				}
				expect("at first", old, "e1")

				terminating := f.want(f.vip, 30053, "e2")
				for key, p := range terminating.Ports {
					p.Serving = f.want(f.vip, 30053, "e1", "e2").Ports[key].Serving
					terminating.Ports[key] = p
				}
				l.apply(terminating)
				expect("the flow of the terminating endpoint", old, "e1")
				young := l.dial(to)
				defer young.Close()
				expect("a flow that begins then", young, "e2")

				l.apply(f.want(f.vip, 30053, "e2"))
				expect("the endpoint is gone", old, "e2")
			})
		}
	}
}

// TestUDPFlowsFollowWhoHasTheAddress has another Service get the address of one: its flows are not left with the endpoints of
// the Service that listed the address itself, or that was another namespace's guest there.
func TestUDPFlowsFollowWhoHasTheAddress(t *testing.T) {
	l := newLab(t)
	for _, f := range families() {
		for name, lists := range map[string]func(p *desired.Port){
			"in spec.externalIPs": func(p *desired.Port) { p.ExternalIPs, p.VIPs = p.VIPs, nil },
			"as a guest":          func(p *desired.Port) { p.Guest = p.VIPs },
		} {
			t.Run(f.String()+" "+name, func(t *testing.T) {
				l.t = t
				alone, both := f.want(f.vip, 0, "e1"), f.want(f.vip, 0, "e2")
				for key, p := range alone.Ports {
					lists(&p)
					delete(alone.Ports, key)
					key.Service.Namespace = "another"
					alone.Ports[key], both.Ports[key] = p, p
				}
				l.apply(alone)
				flow := l.dial(netip.AddrPortFrom(f.vip, 53))
				defer flow.Close()
				for _, step := range []struct {
					name   string
					want   desired.Forwarding
					server string
				}{
					{"alone", alone, "e1"}, {"with the other Service", both, "e2"}, {"alone again", alone, "e1"},
				} {
					l.apply(step.want)
					if got, err := flow.Ask(); err != nil || got.Server != step.server {
						t.Errorf("%s: %v, %v, want an answer of %s", step.name, got, err, step.server)
					}
				}
			})
		}
	}
}
