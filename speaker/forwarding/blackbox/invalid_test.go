package blackbox_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// farAhead is beyond any window: conntrack takes a segment with such a sequence
// number for no part of its flow (state INVALID), and NAT passes it by.
const farAhead = 1 << 29

// invalids are the flows that one segment out of the window could kill: a reply
// that reaches the client with the endpoint's own address has it send a reset to
// the endpoint, and a request that passes its Service by is answered with a reset by
// whoever has the address then.
var invalids = []struct {
	name       string
	from       string // who opens the flow
	n          byte   // Service
	to         string
	server     string // whose reply is out of the window; "" for the client's request
	everywhere bool   // the address of the Service is also elsewhere
}{
	{name: "a reply of a pod to a pod (forwarded)", from: "p1", n: 1, to: "clusterIP", server: "p3"},
	{name: "a reply of a pod to a client outside, not masqueraded (forwarded)", from: "client", n: 2, to: "vip", server: "p1"},
	{name: "a reply of a pod to a masqueraded client (to the node)", from: "client", n: 1, to: "vip", server: "p3"},
	{name: "a reply of a pod to the node (to the node)", from: "node", n: 1, to: "clusterIP", server: "p3"},
	{name: "a reply of the node's own process (from the node)", from: "client", n: 3, to: "vip", server: "node"},
	{name: "a request to a NodePort (to the node)", from: "client", n: 1, to: "nodePort"},
	{name: "a request to a VIP (forwarded)", from: "p1", n: 4, to: "vip", everywhere: true},
}

// TestInvalidSegmentKillsNoFlow sends one segment out of the window on flows of all
// kinds, which must live on.
func TestInvalidSegmentKillsNoFlow(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		far := func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P3), true
		}
		c.Apply(blackbox.Forwarding(
			blackbox.Service{Name: "far", N: 1, Fill: far}, blackbox.Service{Name: "elsewhere", N: 4, Fill: far},
			blackbox.Service{Name: "near", N: 2, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1), blackbox.At(blackbox.ServePort, a.P1)
				p.ExternalLocal, p.Anywhere = true, true
			}},
			blackbox.Service{Name: "host", N: 3, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere = blackbox.At(blackbox.HostPort, a.Node), true
			}}))
		for _, test := range invalids {
			for _, f := range addr.Families() {
				if err := c.survives(f, test.from, test.to, test.n, test.server, test.everywhere); err != nil {
					t.Errorf("%s, %s: %v", test.name, f, err)
				}
			}
		}
	})
}

// survives opens a flow and has its server, or else its client, send a segment out of
// the window on it.
func (c *cluster) survives(f addr.Family, from, kind string, n byte, server string, everywhere bool) error {
	a := blackbox.Plan(f)
	hosts := map[string]*netlab.Host{"client": c.Client, "node": c.Node, "p1": c.P1, "p3": c.P3}
	served := map[string]netip.AddrPort{
		"p1": netip.AddrPortFrom(a.P1, blackbox.ServePort), "p3": netip.AddrPortFrom(a.P3, blackbox.ServePort),
		"node": netip.AddrPortFrom(a.Node, blackbox.HostPort),
	}
	to := map[string]netip.AddrPort{
		"clusterIP": netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, n), 80),
		"vip":       netip.AddrPortFrom(blackbox.Nth(a.VIPs, n), 80),
		"nodePort":  netip.AddrPortFrom(a.Node, 30000+uint16(n)),
	}[kind]
	if everywhere {
		c.Client.Addr("eth0", addr.HostPrefix(to.Addr()).String())
	}
	sender := server
	if sender == "" {
		sender = from
	}
	tap := hosts[sender].Tap(f)
	flow, err := hosts[from].Dial("tcp", netip.AddrPort{}, to, answerIn)
	if err != nil {
		return err
	}
	defer flow.Close()
	if _, err := flow.Ask(); err != nil {
		return err
	}
	// The other end's last word on the flow tells what it expects and has.
	mine, theirs := flow.Local(), to
	if server != "" {
		mine, theirs = served[server], netip.AddrPort{}
	}
	heard, err := tap.Next(answerIn, func(s netlab.Segment) bool {
		return s.To.Port() == mine.Port() && s.Data > 0 && (!theirs.IsValid() || s.From == theirs)
	})
	if err != nil {
		return fmt.Errorf("hear the flow: %w", err)
	}
	bad := netlab.Segment{
		From: mine, To: heard.From, Flags: netlab.ACK, Data: 10,
		Seq: heard.Ack + farAhead, Ack: heard.Seq + uint32(heard.Data),
	}
	if err := tap.Send(bad); err != nil {
		return err
	}
	// What the segment may stir up comes back to its sender.
	if reset, err := tap.Next(silenceAfter, func(s netlab.Segment) bool { return s.Flags&netlab.RST != 0 }); err == nil {
		return fmt.Errorf("%+v was answered with %+v", bad, reset)
	}
	_, err = flow.Ask()
	return err
}

// TestInvalidIsNotAllDropped holds that traffic which takes another way back, so that
// this node sees half of it, passes: only what belongs to Services is taken out.
func TestInvalidIsNotAllDropped(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			sender, receiver := c.P3.Tap(f), c.Client.Tap(f)
			// arrives tells whether the answer to a request that the node has not seen does.
			arrives := func(from uint16, within time.Duration) bool {
				s := netlab.Segment{
					From: netip.AddrPortFrom(a.P3, from), To: netip.AddrPortFrom(a.Client, 5555),
					Flags: netlab.SYN | netlab.ACK, Seq: 1, Ack: 1,
				}
				if err := sender.Send(s); err != nil {
					t.Fatal(err)
				}
				_, err := receiver.Next(within, func(got netlab.Segment) bool { return got.From == s.From })
				return err == nil
			}
			if !arrives(9999, answerIn) {
				t.Errorf("%s: half a flow of no Service is lost", f)
			}
			if arrives(blackbox.ServePort, silenceAfter) {
				t.Errorf("%s: the answer of an endpoint to nobody's request passed: this test proves nothing", f)
			}
		}
	})
}

// TestEndpointThatTerminatesIsCovered holds that the flows of an endpoint which gets no
// new ones, but serves those that it has, are kept from such segments too.
func TestEndpointThatTerminatesIsCovered(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Service{Name: "ends", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Serving, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1), blackbox.At(blackbox.ServePort, a.P1, a.P3), true
		}})
		c.Apply(want)
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			sender, receiver := c.P3.Tap(f), c.Client.Tap(f)
			err := sender.Send(netlab.Segment{
				From: netip.AddrPortFrom(a.P3, blackbox.ServePort), To: netip.AddrPortFrom(a.Client, 5555),
				Flags: netlab.SYN | netlab.ACK, Seq: 1, Ack: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := receiver.Next(silenceAfter, func(s netlab.Segment) bool { return s.From.Addr() == a.P3 }); err == nil {
				t.Errorf("%s: a segment of the endpoint passed with its own address", f)
			}
		}
	})
}

// TestHealthPortsPassTheFirewall holds that what asks for the health of a Service
// reaches the node where it admits nothing else.
func TestHealthPortsPassTheFirewall(t *testing.T) {
	const health, other = 32100, 32101
	eachInFirewall(t, func(t *testing.T, c *cluster) {
		c.Node.Serve(health)
		c.Node.Serve(other)
		want := blackbox.Forwarding()
		apply := func(ports ...uint16) {
			want.HealthPorts = ports
			c.Apply(want)
		}
		apply(health)
		for _, f := range addr.Families() {
			c.Run(c.firewall[f], "-P", "INPUT", "DROP")
			if f == addr.IPv6 { // who has which address must be learned still
				c.Run(c.firewall[f], "-A", "INPUT", "-p", "icmpv6", "-j", "ACCEPT")
			}
		}
		ask := func(f addr.Family, network string, port uint16, timeout time.Duration) error {
			_, err := c.Client.Ask(network, netip.AddrPortFrom(blackbox.Plan(f).Node, port), timeout)
			return err
		}
		for _, f := range addr.Families() {
			if err := ask(f, "tcp", health, answerIn); err != nil {
				t.Errorf("%s: a health port: %v", f, err)
			}
			if err := ask(f, "tcp", other, silenceAfter); err == nil {
				t.Errorf("%s: another port is admitted too", f)
			}
			if err := ask(f, "udp", health, silenceAfter); err == nil {
				t.Errorf("%s: the port is open for %s too", f, view.UDP)
			}
		}
		apply(other)
		for _, f := range addr.Families() {
			if err := ask(f, "tcp", other, answerIn); err != nil {
				t.Errorf("%s: a health port that came: %v", f, err)
			}
			if err := ask(f, "tcp", health, silenceAfter); err == nil {
				t.Errorf("%s: a health port that went is still admitted", f)
			}
		}
	})
}
