// Package blackbox proves what a backend does to packets, on a real kernel and
// without a look at its rules: which host answered, which source the pod saw, what was
// refused and what was dropped. Every backend listed in backends_test.go passes the same
// tests, which are the specification of a backend. The network and the Services of these
// tests are exported for the backends' own tests.
package blackbox

import (
	"context"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Backend is what is under test; see forwarding.Backend, which this package
// cannot import lest the backends' own tests import themselves.
type Backend interface {
	Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error)
	Cleanup(ctx context.Context) error
}

// Where endpoints answer.
const (
	ServePort  = 8080 // pods
	SecondPort = 8081 // pods too
	HostPort   = 9090 // the hosts that are no pods
)

// AnswerIn is long enough for any answer, on a machine that is busy with other tests.
const AnswerIn = time.Minute

// Cluster is a node under test with two pods, a client on its network, and
// another node with a pod behind it.
//
//	client ── node ── other
//	          │  │      │
//	         p1  p2     p3
type Cluster struct {
	Client, Node, Other, P1, P2, P3 *netlab.Host

	t       testing.TB
	make    func() (Backend, error)
	backend Backend
}

// Addresses are those of one family.
type Addresses struct {
	Family        addr.Family
	Client, Other netip.Addr
	Node          netip.Addr // where NodePorts answer
	Aside         netip.Addr // the node's too, but NodePorts do not answer there
	P1, P2, P3    netip.Addr

	ClusterIPs, VIPs, ExternalIPs netip.Prefix
	Pods                          netip.Prefix
	Crowd                         netip.Prefix // more addresses of the client
	Nobody                        netip.Prefix // where no packet comes from
	Bound                         []netip.Addr // VIPs that are addresses of the node, too
	OfNode                        []netip.Addr // all addresses of the node
}

// Plan is the address plan of the cluster.
func Plan(f addr.Family) Addresses {
	a, p := netip.MustParseAddr, netip.MustParsePrefix
	plan := Addresses{
		Family: addr.IPv4, Client: a("192.0.2.100"), Other: a("192.0.3.2"), Node: a("192.0.2.1"), Aside: a("192.0.3.1"),
		P1: a("10.244.1.11"), P2: a("10.244.1.12"), P3: a("10.244.2.13"),
		ClusterIPs: p("10.96.0.0/16"), VIPs: p("198.51.100.0/24"), ExternalIPs: p("198.18.0.0/24"),
		Pods: p("10.244.0.0/16"), Crowd: p("100.64.0.0/16"), Nobody: p("203.0.113.0/24"),
		OfNode: []netip.Addr{a("10.244.1.1")},
	}
	if f == addr.IPv6 {
		plan = Addresses{
			Family: addr.IPv6, Client: a("2001:db8::100"), Other: a("2001:db8:3::2"), Node: a("2001:db8::1"), Aside: a("2001:db8:3::1"),
			P1: a("fd00:1::11"), P2: a("fd00:1::12"), P3: a("fd00:2::13"),
			ClusterIPs: p("fd00:96::/112"), VIPs: p("2001:db8:51::/64"), ExternalIPs: p("2001:db8:18::/64"),
			Pods: p("fd00::/30"), Crowd: p("2001:db8:64::/64"), Nobody: p("2001:db8:113::/64"),
			OfNode: []netip.Addr{a("fd00:1::1")},
		}
	}
	for _, n := range []byte{FirstBound, FirstBound + 1, FirstBound + 2} {
		plan.Bound = append(plan.Bound, Nth(plan.VIPs, n))
	}
	plan.OfNode = slices.Concat(plan.OfNode, []netip.Addr{plan.Node, plan.Aside}, plan.Bound)
	return plan
}

// FirstBound is the number of the first of the three VIPs that the node has as
// addresses of its own.
const FirstBound = 30

// Nth is the address of a prefix with this number as its last byte.
func Nth(p netip.Prefix, n byte) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] = n
	a, _ := netip.AddrFromSlice(b)
	return a
}

// NewCluster builds the network. The backend, which create makes in the
// namespace of the node, is there, and nothing is applied yet.
func NewCluster(t testing.TB, create func() (Backend, error)) *Cluster {
	t.Helper()
	c := &Cluster{t: t, make: create}
	for name, host := range map[string]**netlab.Host{
		"client": &c.Client, "node": &c.Node, "other": &c.Other, "p1": &c.P1, "p2": &c.P2, "p3": &c.P3,
	} {
		*host = netlab.NewHost(t, name)
	}
	netlab.Connect(c.Client, "eth0", c.Node, "lan")
	netlab.Connect(c.Node, "peer", c.Other, "peer")
	c.Client.Addr("eth0", "192.0.2.100/24", "2001:db8::100/64")
	c.Node.Addr("lan", "192.0.2.1/24", "2001:db8::1/64")
	c.Node.Addr("peer", "192.0.3.1/24", "2001:db8:3::1/64")
	c.Other.Addr("peer", "192.0.3.2/24", "2001:db8:3::2/64")
	c.Node.Forward()
	c.Other.Forward()
	for _, h := range []*netlab.Host{c.Client, c.Node, c.Other, c.P1, c.P2, c.P3} { // every refusal of UDP is to be heard
		h.Do(func() {
			h.Sysctl("net/ipv4/icmp_ratemask", "0")
			h.Sysctl("net/ipv6/icmp/ratemask", "\n")
		})
	}
	for _, r := range []struct {
		h              *netlab.Host
		via4, via6, by string
	}{
		{c.Client, "192.0.2.1", "2001:db8::1", "eth0"},
		{c.Node, "192.0.2.100", "2001:db8::100", "lan"}, // which forwards nothing: what is not served is lost
		{c.Other, "192.0.3.1", "2001:db8:3::1", "peer"},
	} {
		r.h.Route("0.0.0.0/0", r.via4, r.by)
		r.h.Route("::/0", r.via6, r.by)
	}
	c.Node.Route("10.244.2.0/24", "192.0.3.2", "peer")
	c.Node.Route("fd00:2::/64", "2001:db8:3::2", "peer")
	pod(c.Node, c.P1, "10.244.1", "11", "fd00:1::")
	pod(c.Node, c.P2, "10.244.1", "12", "fd00:1::")
	pod(c.Other, c.P3, "10.244.2", "13", "fd00:2::")
	c.Other.Serve(HostPort)
	for _, f := range addr.Families() {
		a := Plan(f)
		c.Client.Own(a.Crowd)
		c.Client.ServeAt("client", netip.AddrPortFrom(a.Client, HostPort))
		for _, vip := range a.Bound {
			c.Node.Addr("lo", addr.HostPrefix(vip).String())
		}
		for _, own := range a.OfNode { // one by one: a UDP answer comes from where it was asked
			c.Node.ServeAt("node", netip.AddrPortFrom(own, HostPort))
		}
	}
	c.Restart()
	return c
}

// pod plugs a pod into a node the way a routing CNI does.
func pod(node, pod *netlab.Host, net4, host, net6 string) {
	netlab.Connect(node, pod.Name, pod, "eth0")
	node.Addr(pod.Name, net4+".1/32", net6+"1/128")
	node.Route(net4+"."+host+"/32", "", pod.Name)
	node.Route(net6+host+"/128", "", pod.Name)
	pod.Addr("eth0", net4+"."+host+"/32", net6+host+"/128")
	pod.Route("0.0.0.0/0", net4+".1", "eth0")
	pod.Route("::/0", net6+"1", "eth0")
	pod.Serve(ServePort)
	pod.Serve(SecondPort)
}

// Restart replaces the backend by a new one, as a new process has.
func (c *Cluster) Restart() {
	c.t.Helper()
	var err error
	c.Node.Do(func() { c.backend, err = c.make() })
	if err != nil {
		c.t.Fatal(err)
	}
}

// Try applies want, in as many passes as that takes, and returns what is missing, and the error of the backend.
func (c *Cluster) Try(want desired.Forwarding) (missing outcome.Missing, err error) {
	for missing, err = c.Pass(want); len(outcome.PutOff(err)) > 0; {
		missing, err = c.Pass(want)
	}
	return missing, err
}

// Pass applies want once, and returns what is missing, and the error of the backend.
func (c *Cluster) Pass(want desired.Forwarding) (missing outcome.Missing, err error) {
	c.Node.Do(func() { missing, err = c.backend.Apply(c.t.Context(), want) })
	return missing, err
}

// Apply applies want, all of which must be in place then.
func (c *Cluster) Apply(want desired.Forwarding) {
	c.t.Helper()
	missing, err := c.Try(want)
	if err != nil {
		c.t.Fatalf("apply: %v", err)
	}
	if len(missing) > 0 {
		c.t.Fatalf("apply left out %d of %d ports", len(missing), len(want.Ports))
	}
}

// Cleanup has the backend remove everything.
func (c *Cluster) Cleanup() {
	c.t.Helper()
	var err error
	c.Node.Do(func() { err = c.backend.Cleanup(c.t.Context()) })
	if err != nil {
		c.t.Fatalf("clean up: %v", err)
	}
}

// Run runs a command on the node and returns what it says.
func (c *Cluster) Run(command ...string) string {
	c.t.Helper()
	return RunOn(c.t, c.Node, command...)
}

// RunOn runs a command on a host, which must succeed, and returns what it says.
func RunOn(t testing.TB, h *netlab.Host, command ...string) string {
	t.Helper()
	var out []byte
	var err error
	h.Do(func() { out, err = exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput() })
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// Generation is the number of the kernel's latest transaction of nf_tables on a host.
func Generation(t testing.TB, h *netlab.Host) (number uint32) {
	t.Helper()
	var err error
	h.Do(func() {
		err = nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, 0, 0, nil, func(answer []byte) {
			number, _ = nfnetlink.Number(answer, unix.NFTA_GEN_ID)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// Quiet returns a log that discards all.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Powerless does something without the right to change the network.
func Powerless(t testing.TB, do func()) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
	less := has
	less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &less[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&header, &has[0]); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}
