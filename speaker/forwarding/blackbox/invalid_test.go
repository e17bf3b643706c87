package blackbox_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	name   string
	from   string // who opens the flow
	n      byte   // Service
	to     string
	server string // whose reply is out of the window; "" for the client's request
}{
	{name: "a reply of a pod to a pod (forwarded)", from: "p1", n: 1, to: "clusterIP", server: "p3"},
	{name: "a reply of a pod to a client outside, not masqueraded (forwarded)", from: "client", n: 2, to: "vip", server: "p1"},
	{name: "a reply of a pod to a masqueraded client (to the node)", from: "client", n: 1, to: "vip", server: "p3"},
	{name: "a reply of a pod to the node (to the node)", from: "node", n: 1, to: "clusterIP", server: "p3"},
	{name: "a reply of the node's own process (from the node)", from: "client", n: 3, to: "vip", server: "node"},
	{name: "a request to a NodePort (to the node)", from: "client", n: 1, to: "nodePort"},
	{name: "a request to a VIP (forwarded)", from: "p1", n: 4, to: "vip"},
}

// looseness is how a kernel may take segments of a flow that it has not seen begin:
// for such a flow, as it does by default, or for INVALID.
var looseness = []string{"1", "0"}

func (c *cluster) loose(how string) {
	c.Node.Do(func() { c.Node.Sysctl("net/netfilter/nf_conntrack_tcp_loose", how) })
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
		for _, f := range addr.Families() { // the client has the address of one, too
			c.Client.Addr("eth0", addr.HostPrefix(blackbox.Nth(blackbox.Plan(f).VIPs, 4)).String())
		}
		for _, how := range looseness {
			c.loose(how)
			for _, test := range invalids {
				for _, f := range addr.Families() {
					if err := c.survives(f, test.from, test.to, test.n, test.server, func() {}); err != nil {
						t.Errorf("%s, %s, nf_conntrack_tcp_loose=%s: %v", test.name, f, how, err)
					}
				}
			}
		}
	})
}

// TestStrictConntrack holds that Services do not rely on the kernel taking up flows that
// it has not seen begin: all are served as ever, and flows outlive changes, a restart and
// a flush.
func TestStrictConntrack(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(slices.Concat(blackbox.Services(), moreServices())...)
		c.Apply(want)
		c.loose("0")
		if err := c.askAbout(0, want); err != nil {
			t.Error(err)
		}
		flows := c.establish(want)
		without := want
		without.Ports = maps.Clone(want.Ports)
		maps.DeleteFunc(without.Ports, func(key desired.PortKey, _ desired.Port) bool { return key.Service.Name == "cluster" })
		for _, change := range []struct {
			name string
			do   func()
		}{
			{"a Service goes", func() { c.Apply(without) }},
			{"it is back", func() { c.Apply(want) }},
			{"a restart", func() { c.Restart(); c.Apply(want) }},
			{"somebody flushes all rules", func() { c.keepTranslating(); c.Run("sh", "-c", c.flush); c.Apply(want) }},
		} {
			change.do()
			if err := live(flows); err != nil {
				t.Errorf("after %q: %v", change.name, err)
			}
		}
	})
}

// survives opens a flow and, after something else, has its server, or else its client, send a
// segment out of the window on it.
func (c *cluster) survives(f addr.Family, from, kind string, n byte, server string, after func()) error {
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
	sender := server
	if sender == "" {
		sender = from
	}
	tap := newTap(c.t, hosts[sender], f)
	flow, err := hosts[from].Dial("tcp", netip.AddrPort{}, to, answerIn)
	if err != nil {
		return err
	}
	defer flow.Close()
	if _, err := flow.Ask(); err != nil {
		return err
	}
	after()
	if _, err := flow.Ask(); err != nil {
		return err
	}
	// The other end's last word on the flow tells what it expects and has.
	mine, theirs := flow.Local(), to
	if server != "" {
		mine, theirs = served[server], netip.AddrPort{}
	}
	heard, err := tap.next(answerIn, func(s tcpSegment) bool {
		return s.To.Port() == mine.Port() && s.Data > 0 && (!theirs.IsValid() || s.From == theirs)
	})
	if err != nil {
		return fmt.Errorf("hear the flow: %w", err)
	}
	bad := tcpSegment{
		From: mine, To: heard.From, Flags: tcpACK, Data: 10,
		Seq: heard.Ack + farAhead, Ack: heard.Seq + uint32(heard.Data),
	}
	if err := tap.send(bad); err != nil {
		return err
	}
	// What the segment may stir up comes back to its sender.
	if reset, err := tap.next(silenceAfter, func(s tcpSegment) bool { return s.Flags&tcpRST != 0 }); err == nil {
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
			sender, receiver := newTap(t, c.P3, f), newTap(t, c.Client, f)
			// arrives tells whether what belongs to no flow that the node has seen does.
			arrives := func(from uint16, flags uint8, within time.Duration) bool {
				s := tcpSegment{
					From: netip.AddrPortFrom(a.P3, from), To: netip.AddrPortFrom(a.Client, 5555),
					Flags: flags, Seq: 1, Ack: 1,
				}
				if err := sender.send(s); err != nil {
					t.Fatal(err)
				}
				_, err := receiver.next(within, func(got tcpSegment) bool { return got.From == s.From && got.Flags == flags })
				return err == nil
			}
			const port = blackbox.ServePort
			for _, pass := range []struct {
				what  string
				from  uint16
				flags uint8
			}{
				{"what is of no Service", 9999, tcpFIN | tcpACK},
				{"an endpoint's answer to a SYN that went another way", port, tcpSYN | tcpACK},
				{"an endpoint's refusal of it", port, tcpRST | tcpACK},
			} {
				if !arrives(pass.from, pass.flags, answerIn) {
					t.Errorf("%s: %s is lost", f, pass.what)
				}
			}
			if arrives(port, tcpFIN|tcpACK, silenceAfter) {
				t.Errorf("%s: the answer of an endpoint to nobody's request passed: this test proves nothing", f)
			}
		}
	})
}

// TestAsymmetricFlowsOfEndpointsLive has a client talk to the very port of an endpoint,
// past the Service, by a way on which the node sees the answers only.
func TestAsymmetricFlowsOfEndpointsLive(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
		netlab.Connect(c.Client, "aside", c.Other, "aside")
		c.Client.Addr("aside", "192.0.4.100/24", "2001:db8:4::100/64")
		c.Other.Addr("aside", "192.0.4.2/24", "2001:db8:4::2/64")
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			via := map[addr.Family]string{addr.IPv4: "192.0.4.2", addr.IPv6: "2001:db8:4::2"}[f]
			c.Client.Route(addr.HostPrefix(a.P3).String(), via, "aside")
			flow, err := c.Client.Dial("tcp", netip.AddrPortFrom(a.Client, 0), netip.AddrPortFrom(a.P3, blackbox.ServePort), answerIn)
			if err != nil {
				t.Errorf("%s: %v", f, err)
				continue
			}
			defer flow.Close()
			for range 3 {
				if got, err := flow.Ask(); err != nil || got.Server != "p3" {
					t.Errorf("%s: %s, want an answer of p3", f, said(got, err))
				}
			}
			if err := c.strictly(a); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	})
}

// strictly holds what the guide says of such a flow where the kernel takes up none that it
// has not seen begin: it opens, and what the endpoint answers is lost.
func (c *cluster) strictly(a blackbox.Addresses) error {
	c.loose("0")
	defer c.loose("1")
	flow, err := c.Client.Dial("tcp", netip.AddrPortFrom(a.Client, 0), netip.AddrPortFrom(a.P3, blackbox.ServePort), answerIn)
	if err != nil {
		return fmt.Errorf("without tcp_loose it does not open: %w", err)
	}
	defer flow.Close()
	if got, err := flow.AskFor(silenceAfter); err == nil {
		return fmt.Errorf("without tcp_loose: %s, want silence: the guide says otherwise", said(got, err))
	}
	return nil
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
			sender, receiver := newTap(t, c.P3, f), newTap(t, c.Client, f)
			err := sender.send(tcpSegment{
				From: netip.AddrPortFrom(a.P3, blackbox.ServePort), To: netip.AddrPortFrom(a.Client, 5555),
				Flags: tcpFIN | tcpACK, Seq: 1, Ack: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := receiver.next(silenceAfter, func(s tcpSegment) bool { return s.From.Addr() == a.P3 }); err == nil {
				t.Errorf("%s: a segment of the endpoint passed with its own address", f)
			}
		}
	})
}

// TestEndpointsThatServeNoMoreAreCovered holds that the connections of an endpoint live on
// whatever becomes of it, as long as it is listed: from the objects of the cluster to packets.
func TestEndpointsThatServeNoMoreAreCovered(t *testing.T) {
	fates := map[string]func(*view.Cluster, *view.Endpoint){
		"not ready":                   func(_ *view.Cluster, e *view.Endpoint) { e.Ready, e.Serving = false, false },
		"terminating and not serving": func(_ *view.Cluster, e *view.Endpoint) { e.Ready, e.Serving, e.Terminating = false, false, true },
		"on a node taken for dead":    func(c *view.Cluster, _ *view.Endpoint) { c.Fallen = map[string]struct{}{"other": {}} },
	}
	eachBackend(t, func(t *testing.T, c *cluster) {
		var pods []netip.Prefix
		for _, f := range addr.Families() {
			pods = append(pods, blackbox.Plan(f).Pods)
		}
		engine := desired.NewEngine(desired.Options{Node: "node", Pods: desired.PodDetection{ClusterCIDRs: pods}})
		// become has p3 be the only endpoint that is ready, and then one of which this has become beside another.
		become := func(fate func(*view.Cluster, *view.Endpoint)) {
			objects, all := hinted("", hint{}, hint{}, hint{}), map[view.Ref][]view.Endpoint{}
			for ref := range objects.Services {
				for _, e := range slices.Concat(objects.Endpoints.Of(ref)) {
					switch {
					case e.Node == "other" && fate != nil:
						fate(objects, &e)
					case e.Node == "node" && fate == nil:
						e.Ready, e.Serving = false, false
					}
					all[ref] = append(all[ref], e)
				}
			}
			objects.Endpoints = new(view.Endpoints).With(all)
			node, _ := engine.Decide(objects)
			c.Apply(node.Forwarding)
		}
		for name, fate := range fates {
			for _, f := range addr.Families() {
				for from, to := range map[string]string{"client": "vip", "p1": "clusterIP"} {
					become(nil)
					if err := c.survives(f, from, to, 1, "p3", func() { become(fate) }); err != nil {
						t.Errorf("%s, %s, from %s: %v", name, f, from, err)
					}
				}
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

// TestHealthPortsPassTheFirewallWhereTheyAnswer holds that the other addresses of the node stay as the
// firewall has them, when somebody has said where NodePorts answer.
func TestHealthPortsPassTheFirewallWhereTheyAnswer(t *testing.T) {
	const health = 32100
	eachInFirewall(t, func(t *testing.T, c *cluster) {
		c.Node.Serve(health)
		want := blackbox.Forwarding()
		want.HealthPorts = []uint16{health}
		c.Apply(want)
		for _, f := range addr.Families() {
			c.Run(c.firewall[f], "-P", "INPUT", "DROP")
			if f == addr.IPv6 { // who has which address must be learned still
				c.Run(c.firewall[f], "-A", "INPUT", "-p", "icmpv6", "-j", "ACCEPT")
			}
		}
		ask := func(a netip.Addr, timeout time.Duration) error {
			_, err := c.Client.Ask("tcp", netip.AddrPortFrom(a, health), timeout)
			return err
		}
		for _, narrow := range []bool{false, true, false} {
			want.HealthNarrow = narrow
			c.Apply(want)
			for _, f := range addr.Families() {
				plan := blackbox.Plan(f)
				if err := ask(plan.Node, answerIn); err != nil {
					t.Errorf("%s, narrow %t: where NodePorts answer: %v", f, narrow, err)
				}
				for _, a := range []netip.Addr{plan.Aside, plan.Bound[0]} {
					timeout := answerIn
					if narrow {
						timeout = silenceAfter
					}
					if err := ask(a, timeout); (err == nil) == narrow {
						t.Errorf("%s, narrow %t: %s, where they do not: %v", f, narrow, a, err)
					}
				}
			}
		}
	})
}
