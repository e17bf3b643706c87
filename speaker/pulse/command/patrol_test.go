package command_test

import (
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/speaker/pulse/api"
)

// doubted tells whether the runner-up found as much; all is of the first node, and on eth0 unless it says otherwise.
func (l *lab) doubted(want api.Doubt) func(api.State) bool {
	want.Owner = l.nodes[0].name
	if want.Interface == "" {
		want.Interface = "eth0"
	}
	return func(s api.State) bool {
		d, is := s.Doubted[l.vip]
		d.Since = time.Time{}
		return is && d == want
	}
}

func sure(s api.State) bool { return len(s.Doubted) == 0 }

// TestTheRunnerUp finds who else answers, or that nobody does. That takes a while, in which little happens.
func TestTheRunnerUp(t *testing.T) {
	t.Parallel()
	allAtOnce(t, map[string]func(*testing.T){
		"hears another node answer":         hearAnother,
		"hears another node answer by IPv6": hearAnotherIPv6,
		"hears a proxy":                     hearProxy,
		"knows its own kernel":              ownKernel,
		"hears a stranger":                  func(t *testing.T) { inBothAtOnce(t, hearStranger) },
		"misses the owner's answer":         func(t *testing.T) { inBothAtOnce(t, missAnswers) },
	})
}

// A kernel that answers besides the owner, as where kube-proxy in IPVS mode has the address on
// an interface, and strictARP is off.
func hearAnother(t *testing.T) {
	l := newLab(t, 3, patient...)
	third := l.nodes[2]
	third.hold(t, "kube-ipvs0", l.plan)
	l.start(t)
	l.doubts(t, api.Doubt{Node: third.name, Station: third.mac().String()})
	third.Sysctl("ipv4/conf/all/arp_ignore", "1") // strictARP
	l.nodes[1].until("told that the third node does not answer any more", sure)
}

// With IPv6, the interface itself has to have it.
func hearAnotherIPv6(t *testing.T) {
	l := newLabOf(t, ipv6, 3, patient...)
	third := l.nodes[2]
	third.AddAddress("eth0", l.address())
	l.start(t)
	l.doubts(t, api.Doubt{Node: third.name, Station: third.mac().String()})
	third.DeleteAddress("eth0", l.address())
	l.nodes[1].until("told that the third node does not answer any more", sure)
}

// A proxy answers only to who asks as a client does, with an address of its own.
func hearProxy(t *testing.T) {
	l := newLab(t, 3, patient...)
	third := l.nodes[2]
	third.DeleteAddress("lo", l.vip.String()+"/32")
	bridge(third, "other", "198.51.100.1/24")
	third.SetUp("other")
	if err := third.Netlink.RouteAdd(&netlink.Route{LinkIndex: third.Link("other").Attrs().Index, Dst: &net.IPNet{IP: l.vip.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
		t.Fatal(err)
	}
	third.Sysctl("ipv4/conf/all/forwarding", "1")
	third.Sysctl("ipv4/conf/eth0/proxy_arp", "1")
	l.start(t)
	l.doubts(t, api.Doubt{Node: third.name, Station: third.mac().String()})
	third.Sysctl("ipv4/conf/eth0/proxy_arp", "0")
	l.nodes[1].until("told that the proxy does not answer any more", sure)
}

// The runner-up's own kernel, which nobody else asks where there are two nodes.
func ownKernel(t *testing.T) {
	l := newLab(t, 2, patient...)
	second := l.nodes[1]
	second.hold(t, "kube-ipvs0", l.plan)
	l.start(t)
	l.doubts(t, api.Doubt{Node: second.name, Station: second.mac().String(), Interface: "kube-ipvs0"})
	second.Sysctl("ipv4/conf/all/arp_ignore", "1")
	second.until("told that its kernel does not answer any more", sure)
}

// A stranger that has the address and says so only to who asks. The owner asks when it takes the
// address, and hears nothing of him later.
func hearStranger(t *testing.T, p plan) {
	l := newLabOf(t, p, 3, patient...)
	l.start(t)
	stranger := l.stranger(t)
	mac := stranger.MAC("eth0").String()
	l.doubts(t, api.Doubt{Station: mac})
	owner := l.nodes[0]
	owner.dropAnswers(t, p)
	l.nodes[1].until("told that the owner is not even heard", l.doubted(api.Doubt{Station: mac, Alone: true}))
	owner.nft(t, "delete table netdev switch")
	stranger.DeleteAddress("eth0", l.address())
	l.nodes[1].until("told that the stranger does not answer any more", sure)
}

// bridge makes an interface with nothing behind it.
func bridge(n *node, name string, prefixes ...string) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	n.Add(&netlink.Bridge{LinkAttrs: attrs})
	for _, p := range prefixes {
		n.AddAddress(name, p)
	}
}

// hold has an interface of the node have the address, and its kernel answer for that.
func (n *node) hold(t *testing.T, name string, p plan) {
	t.Helper()
	host := p.vip.String() + "/32"
	n.DeleteAddress("lo", host)
	bridge(n, name, host)
	n.Sysctl("ipv4/conf/all/arp_ignore", "0")
}

// A switch that drops what the owner says, which only others can notice.
func missAnswers(t *testing.T, p plan) {
	l := newLabOf(t, p, 3, patient...)
	owner := l.nodes[0]
	owner.dropAnswers(t, p)
	l.start(t)
	l.doubts(t, api.Doubt{})
	owner.nft(t, "delete table netdev switch")
	l.nodes[1].until("told that the owner answers", sure)
}

// dropAnswers drops what the node says of the address, as a switch may.
func (n *node) dropAnswers(t *testing.T, p plan) {
	t.Helper()
	match := "ip6 saddr"
	if p.vip.Is4() {
		match = "arp saddr ip"
	}
	n.nft(t, "table netdev switch { chain drops { type filter hook egress device eth0 priority 0; "+match+" "+p.vip.String()+" drop; }; }")
}

// doubts waits until the runner-up, and nobody else, tells as much.
func (l *lab) doubts(t *testing.T, want api.Doubt) {
	t.Helper()
	took := l.nodes[1].until("told who answers", l.doubted(want))
	t.Logf("told after %v", took.Round(time.Second))
	for i, n := range l.nodes {
		if s, _ := n.client.State(); i != 1 && !sure(s) {
			t.Errorf("%s, which is not the next candidate, tells of %+v", n.name, s.Doubted)
		}
	}
}

// nft runs a command of nft on the node.
func (n *node) nft(t *testing.T, command string) {
	t.Helper()
	if err := n.Do(func() error {
		out, err := exec.CommandContext(t.Context(), "nft", command).CombinedOutput()
		if len(out) > 0 {
			t.Logf("nft: %s", out)
		}
		return err
	}); err != nil {
		t.Fatalf("nft %s: %v", command, err)
	}
}
