package blackbox_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/handover"
)

// segment is a client and three nodes with a pod each on one network, on which addresses
// move from node to node.
//
//	client ── switch ── a, b, c ── a pod each
type segment struct {
	t      *testing.T
	client *netlab.Host
	nodes  []*station
}

// station is a node with the backend under test, and what hands over.
type station struct {
	*netlab.Host
	n        int
	mac      string
	pod      *netlab.Host
	backend  blackbox.Backend
	handover *handover.Table
}

// addressOf is the address of a node in one family, podOf that of its pod. The client's
// number is 100.
func addressOf(f addr.Family, n int) netip.Addr {
	return netip.MustParseAddr(map[addr.Family]string{addr.IPv4: "192.0.2.", addr.IPv6: "2001:db8::"}[f] + fmt.Sprint(n))
}

func podOf(f addr.Family, n int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(map[addr.Family]string{addr.IPv4: "10.244.%d.10", addr.IPv6: "fd00:%d::10"}[f], n))
}

// vipOf is the address of the Service of each policy.
func vipOf(f addr.Family, local bool) netip.Addr {
	n := 200
	if local {
		n = 201
	}
	return addressOf(f, n)
}

func newSegment(t *testing.T, create func() (blackbox.Backend, error)) *segment {
	t.Helper()
	s := &segment{t: t, client: netlab.NewHost(t, "client")}
	lan := netlab.NewHost(t, "switch")
	blackbox.RunOn(t, lan, "ip", "link", "add", "lan", "up", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
	join := func(h *netlab.Host, n int) {
		port := "p" + fmt.Sprint(n)
		netlab.Connect(h, "eth0", lan, port)
		blackbox.RunOn(t, lan, "ip", "link", "set", port, "master", "lan")
		h.Addr("eth0", addressOf(addr.IPv4, n).String()+"/24", addressOf(addr.IPv6, n).String()+"/64")
	}
	join(s.client, 100)
	for n, name := range []string{1: "a", 2: "b", 3: "c"} {
		if n == 0 {
			continue
		}
		node := &station{Host: netlab.NewHost(t, name), n: n, pod: netlab.NewHost(t, "pod-"+name), handover: handover.NewTable()}
		join(node.Host, n)
		node.Forward()
		node.Do(func() {
			if eth0, err := net.InterfaceByName("eth0"); err == nil {
				node.mac = eth0.HardwareAddr.String()
			}
		})
		netlab.Connect(node.Host, "pod", node.pod, "eth0")
		for _, f := range addr.Families() {
			gateway := fmt.Sprintf(map[addr.Family]string{addr.IPv4: "10.244.%d.1", addr.IPv6: "fd00:%d::1"}[f], n)
			node.Addr("pod", addr.HostPrefix(netip.MustParseAddr(gateway)).String())
			node.Route(addr.HostPrefix(podOf(f, n)).String(), "", "pod")
			node.pod.Addr("eth0", addr.HostPrefix(podOf(f, n)).String())
			node.pod.Route(map[addr.Family]string{addr.IPv4: "0.0.0.0/0", addr.IPv6: "::/0"}[f], gateway, "eth0")
			for other := 1; other <= 3; other++ {
				if other != n {
					node.Route(addr.HostPrefix(podOf(f, other)).String(), addressOf(f, other).String(), "eth0")
				}
			}
		}
		node.pod.Serve(blackbox.ServePort)
		var err error
		node.Do(func() { node.backend, err = create() })
		if err != nil {
			t.Fatal(err)
		}
		s.nodes = append(s.nodes, node)
	}
	return s
}

// serve has each node forward both Services. Of the one whose policy is Local, the pods of
// these nodes alone are endpoints.
func (s *segment) serve(local ...int) {
	s.t.Helper()
	for _, node := range s.nodes {
		want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
		for _, f := range addr.Families() {
			want.Pods = append(want.Pods, netip.MustParsePrefix(map[addr.Family]string{addr.IPv4: "10.244.0.0/16", addr.IPv6: "fd00::/16"}[f]))
			everywhere := blackbox.At(blackbox.ServePort, podOf(f, 1), podOf(f, 2), podOf(f, 3))
			for _, isLocal := range []bool{false, true} {
				port := desired.Port{
					ClusterIP: blackbox.Nth(blackbox.Plan(f).ClusterIPs, 1), VIPs: []netip.Addr{vipOf(f, isLocal)}, Port: 80,
					Cluster: everywhere, Anywhere: true, ExternalLocal: isLocal,
				}
				if isLocal {
					port.ClusterIP, port.Cluster = blackbox.Nth(blackbox.Plan(f).ClusterIPs, 2), nil
					for _, n := range local {
						port.Cluster = append(port.Cluster, netip.AddrPortFrom(podOf(f, n), blackbox.ServePort))
						if n == node.n {
							port.Local = blackbox.At(blackbox.ServePort, podOf(f, n))
						}
					}
				}
				want.Ports[blackbox.Key(fmt.Sprint("local-", isLocal), view.TCP, f)] = port
			}
		}
		var missing outcome.Missing
		var err error
		node.Do(func() { missing, err = node.backend.Apply(s.t.Context(), want) })
		if err != nil || len(missing) > 0 {
			s.t.Fatalf("%s: %v, missing %v", node.Name, err, missing)
		}
	}
}

// move has the client send to a node what is for the addresses, as a gratuitous ARP does.
func (s *segment) move(to *station) {
	s.t.Helper()
	for _, f := range addr.Families() {
		for _, local := range []bool{false, true} {
			blackbox.RunOn(s.t, s.client, "ip", "neigh", "replace", vipOf(f, local).String(), "lladdr", to.mac, "dev", "eth0")
		}
	}
}

// precede tells a node who had the addresses before it; nil for nobody.
func (s *segment) precede(node, former *station) {
	s.t.Helper()
	want := map[netip.Addr]netip.Addr{}
	for _, f := range addr.Families() {
		for _, local := range []bool{false, true} {
			if former != nil {
				want[vipOf(f, local)] = addressOf(f, former.n)
			}
		}
	}
	var err error
	node.Do(func() { err = node.handover.Apply(want) })
	if err != nil {
		s.t.Fatal(err)
	}
}

// handed is how many packets a node handed over, of both families.
func (s *segment) handed(node *station) uint64 {
	s.t.Helper()
	var all uint64
	for _, f := range addr.Families() {
		var n uint64
		var err error
		table := nftable.New(f, kernelwatch.HandoverTable)
		node.Do(func() { n, err = table.Packets() })
		if err != nil {
			s.t.Fatal(err)
		}
		all += n
	}
	return all
}

// open opens connections to each address, and asks on each. Questions are of that many bytes.
func (s *segment) open(each, bytes int) []established {
	s.t.Helper()
	return s.openFrom(0, each, bytes)
}

// openFrom is open from ports of which this is the first; 0: from any that no flow had before.
func (s *segment) openFrom(port, each, bytes int) []established {
	s.t.Helper()
	var flows []established
	for _, f := range addr.Families() {
		for _, local := range []bool{false, true} {
			for range each {
				what, from := fmt.Sprintf("%s, policy Local %v", f, local), netip.AddrPort{}
				if port > 0 {
					from = netip.AddrPortFrom(addressOf(f, 100), uint16(port))
					what, port = fmt.Sprintf("%s, from %s", what, from), port+1
				}
				flow, err := s.client.Dial("tcp", from, netip.AddrPortFrom(vipOf(f, local), 80), answerIn)
				if err != nil {
					s.t.Fatalf("%s: %v", what, err)
				}
				s.t.Cleanup(flow.Close)
				first, err := flow.Long(bytes).Ask()
				if err != nil {
					s.t.Fatalf("%s: %v", what, err)
				}
				flows = append(flows, established{flow, what, first})
			}
		}
	}
	return flows
}

func eachSegment(t *testing.T, test func(t *testing.T, s *segment)) {
	t.Parallel()
	for _, b := range contenders {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, newSegment(t, b.create))
		})
	}
}

// TestConnectionsOutliveAMove has connections of both policies go on after their address has
// moved, small questions and large ones, in both directions, until they end, while new ones
// are the new owner's.
func TestConnectionsOutliveAMove(t *testing.T) {
	eachSegment(t, func(t *testing.T, s *segment) {
		a, b, c := s.nodes[0], s.nodes[1], s.nodes[2]
		s.serve(1, 2, 3)
		s.precede(b, a)
		s.move(a)
		flows := append(s.open(4, 0), s.open(4, 50_000)...)
		if n := s.handed(b); n > 0 {
			t.Errorf("b handed over %d packets before anything moved", n)
		}
		s.move(b)
		for range 3 {
			if err := live(flows); err != nil {
				t.Error("after the move: ", err)
			}
		}
		if s.handed(b) == 0 {
			t.Error("b handed over nothing, so that this test shows nothing")
		}
		for _, e := range s.open(2, 0) {
			if strings.Contains(e.what, "true") && e.first.Server != "pod-b" {
				t.Errorf("new, %s: answered by %s, want pod-b: the new owner's", e.what, e.first.Server)
			}
			e.flow.Close()
		}
		// The pods of the former owner end: what has begun goes on with them until they have.
		s.serve(2, 3)
		if err := live(flows); err != nil {
			t.Error("after the endpoints became others: ", err)
		}
		// The end of a connection comes to the pod as well.
		for _, e := range flows {
			e.flow.Close()
		}
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			left := blackbox.RunOn(t, a.pod, "ss", "-Htn", "state", "established", "sport", "=", fmt.Sprint(":", blackbox.ServePort))
			if left == "" {
				break
			}
			if time.Since(began) > answerIn {
				t.Fatalf("connections are open at the pod of the former owner though their clients have closed them:\n%s", left)
			}
		}
		// The address goes back, and on to a third one: its connections are those of the last owner.
		s.serve(1, 2, 3)
		s.precede(a, b)
		s.precede(c, a)
		flows = s.open(2, 0)
		s.move(a)
		flows = append(flows, s.open(2, 0)...)
		if err := live(flows); err != nil {
			t.Error("after the address moved back: ", err)
		}
		flows = s.open(2, 0)
		s.move(c)
		if err := live(flows); err != nil {
			t.Error("after it moved on: ", err)
		}
	})
}

// reset tells that a connection was ended by the other side.
func reset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) || err != nil && !errors.Is(err, netlab.ErrSilence)
}

// TestUnknownConnectionsAreReset holds that what nobody knows is told so, and at once: when
// nothing is handed over, as after the former owner has died, and when two nodes take each
// other for the former owner. No packet is handed over twice.
func TestUnknownConnectionsAreReset(t *testing.T) {
	eachSegment(t, func(t *testing.T, s *segment) {
		a, b, c := s.nodes[0], s.nodes[1], s.nodes[2]
		s.serve(1, 2, 3)
		s.move(a)
		dead, strange := s.open(3, 0), s.open(3, 0)
		s.precede(b, a)
		s.precede(b, nil)
		s.move(b)
		for _, e := range dead {
			if got, err := e.flow.Ask(); !reset(err) {
				t.Errorf("%s, without a former owner: %s, want a reset", e.what, said(got, err))
			}
		}
		s.precede(b, c)
		s.precede(c, b)
		for _, e := range strange {
			if got, err := e.flow.Ask(); !reset(err) {
				t.Errorf("%s, with a former owner that knows nothing of it: %s, want a reset", e.what, said(got, err))
			}
		}
		if s.handed(b) == 0 {
			t.Error("b handed over nothing, so that this test shows nothing")
		}
		if n := s.handed(c); n > 0 {
			t.Errorf("c handed %d packets back to b", n)
		}
	})
}
