package blackbox_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// onBridge are the addresses of the bridge, and of the two pods on it.
func onBridge(f addr.Family) (bridge netip.Prefix, server, client netip.Addr) {
	bridge = netip.MustParsePrefix(map[addr.Family]string{addr.IPv4: "10.244.3.1/24", addr.IPv6: "fd00:3::1/64"}[f])
	return bridge, blackbox.Nth(bridge, 11), blackbox.Nth(bridge, 12)
}

// TestPodsOnABridge has a pod ask a Service whose endpoint is beside it on a bridge: it has an answer where netfilter sees what
// passes from port to port, and wherever it has none, the node says so. Of the two settings for that, neither is one while the
// module is not loaded, which an emulated kernel has as such.
func TestPodsOnABridge(t *testing.T) {
	t.Parallel()
	for _, b := range append(whole(), contenders[1]) { // the module is the whole machine's: one after another
		t.Run(b.name, func(t *testing.T) {
			latest, create := new(blackbox.Backend), b.create
			b.create = func() (_ blackbox.Backend, err error) {
				*latest, err = create()
				return *latest, err
			}
			b.latest = latest
			(&cluster{blackbox.NewCluster(t, b.create), b, t}).bridged()
		})
	}
}

func (c *cluster) bridged() {
	server, client := netlab.NewHost(c.t, "server"), netlab.NewHost(c.t, "beside")
	c.Run("ip", "link", "add", "cni0", "type", "bridge")
	for _, pod := range []*netlab.Host{server, client} {
		netlab.Connect(c.Node, pod.Name, pod, "eth0")
		c.Run("ip", "link", "set", pod.Name, "master", "cni0")
	}
	c.Run("ip", "link", "set", "cni0", "up")
	c.Node.AwaitCarrier("cni0")
	for _, f := range addr.Families() {
		bridge, at, from := onBridge(f)
		c.Node.Addr("cni0", bridge.String())
		for pod, a := range map[*netlab.Host]netip.Addr{server: at, client: from} {
			pod.Addr("eth0", netip.PrefixFrom(a, bridge.Bits()).String())
			pod.Route(netip.PrefixFrom(a, 0).Masked().String(), bridge.Addr().String(), "eth0")
		}
	}
	server.Serve(blackbox.ServePort)
	want := blackbox.Forwarding(blackbox.Service{Name: "beside", N: 9, Fill: func(a blackbox.Addresses, p *desired.Port) {
		_, at, _ := onBridge(a.Family)
		p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, at), true
	}})
	sysctl := func(value string) {
		c.Node.Do(func() {
			c.Node.Sysctl("net/bridge/bridge-nf-call-iptables", value)
			c.Node.Sysctl("net/bridge/bridge-nf-call-ip6tables", value)
		})
	}
	own := func(value string) {
		c.Run("ip", "link", "set", "cni0", "type", "bridge", "nf_call_iptables", value, "nf_call_ip6tables", value)
	}
	expect := func(when string, answers bool) {
		c.t.Helper()
		c.Apply(want)
		c.expectBeside(when, client, answers)
	}
	if netlab.Emulated() {
		if _, err := os.Stat("/proc/sys/net/bridge"); err == nil {
			c.Run("rmmod", "br_netfilter") // modprobe -r would take the module of bridges, too
		}
		expect("no module", false)
		own("1")
		expect("no module, set for the bridge", false)
		own("0")
		c.Run("modprobe", "br_netfilter")
	}
	sysctl("1")
	expect("set for all bridges", true)
	sysctl("0")
	expect("not set", false)
	own("1")
	expect("set for the bridge", true)
}

// expectBeside asks the Service from the pod, and whether the node says that what it asks goes past netfilter.
func (c *cluster) expectBeside(when string, pod *netlab.Host, answers bool) {
	c.t.Helper()
	within := answerIn
	if !answers {
		within = silenceAfter
	}
	for _, f := range addr.Families() {
		_, _, from := onBridge(f)
		for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
			to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).ClusterIPs, 9), 80)
			got, err := ask(sender{"beside", pod, from}, protocol, to, within)
			if answered := err == nil && got.Server == "server" && got.Seen == from.String(); answered != answers {
				c.t.Errorf("%s: %s %s: %+v, %v, want an answer: %t", when, protocol, to, got, err, answers)
			}
		}
	}
	whole, has := (*c.latest).(wholeBackend)
	if !has {
		return
	}
	told := 0
	c.Node.Do(func() {
		// Settings of interfaces are in /sys, which is of the namespace in which it was mounted.
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("sysfs", "/sys", "sysfs", 0, "")); err != nil {
			c.t.Errorf("mount /sys: %v", err)
		}
		for _, fault := range whole.Faults() {
			if fault.Reason == outcome.ReasonBridgeBypassed {
				told++
			}
		}
	})
	if want := map[bool]int{false: len(addr.Families())}[answers]; told != want {
		c.t.Errorf("%s: %d families are told of, want %d", when, told, want)
	}
}
