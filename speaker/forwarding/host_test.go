package forwarding

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestForwardingIsSwitchedOff has the host's settings say that it forwards nothing, at the start and later, of one family or
// by one interface: all ports of the family are missing until they say otherwise, and each change is noticed.
func TestForwardingIsSwitchedOff(t *testing.T) {
	const every4, every6, one4 = "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/conf/client/forwarding"
	for _, mode := range []Mode{IPTables, NFTables} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t)
			l.inMode(mode)
			want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
			for _, f := range families() {
				of := f.want(f.vip, 30053, "e1")
				maps.Copy(want.Ports, of.Ports)
				want.Own = append(want.Own, f.node)
				want.NodePorts = append(want.NodePorts, of.NodePorts...)
			}
			told := make(chan struct{}, 1)
			expect := func(when string, off ...addr.Family) {
				t.Helper()
				var missing outcome.Missing
				var err error
				l.node.Do(func() { missing, err = l.backend.Apply(t.Context(), want) })
				failed := outcome.AllOf[*outcome.FamilyError](err)
				if len(missing) != len(off) || len(failed) != len(off) {
					t.Fatalf("%s: %d ports are missing, error %v", when, len(missing), err)
				}
				for i, family := range off {
					for key := range missing {
						if key.Family != family {
							t.Errorf("%s: a port of %s is missing", when, key.Family)
						}
					}
					if failed[i].Family != family || outcome.ReasonOf(failed[i]) != outcome.ReasonForwardingDisabled || !failed[i].Settled {
						t.Errorf("%s: %v", when, failed[i])
					}
				}
			}
			set := func(name, value string) {
				t.Helper()
				select {
				case <-told:
				default:
				}
				l.node.Do(func() { l.node.Sysctl(name, value) })
				select {
				case <-told:
				case <-time.After(answerIn):
					t.Fatalf("%s=%s: not noticed", name, value)
				}
			}
			l.node.Do(func() { l.node.Sysctl(every4, "0") })
			expect("from the start", addr.IPv4)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go l.node.Do(func() {
				defer close(ended)
				l.backend.Watch(ctx, func() {
					select {
					case told <- struct{}{}:
					default:
					}
				})
			})
			defer func() { stop(); <-ended }()
			set(every4, "1")
			expect("on")
			set(every6, "0")
			expect("no IPv6", addr.IPv6)
			set(every6, "1")
			expect("on again")
			set(one4, "0")
			expect("one interface", addr.IPv4)
			set(one4, "1")
			expect("all interfaces")
			set(every6, "0")
			for _, link := range []string{"client", "e1", "e2"} {
				blackbox.RunOn(t, l.node, "ip", "-6", "addr", "flush", "dev", link, "scope", "global")
			}
			absent := func() (is bool) {
				l.node.Do(func() {
					_, err := l.backend.Apply(t.Context(), want)
					is = outcome.Absent(err)[addr.IPv6] && outcome.Failing(err) == nil
				})
				return is
			}
			if !absent() {
				t.Error("a host of IPv4 alone that forwards no IPv6 fails")
			}
		})
	}
}

// faults are the reasons of what is found on the node, each with the family or the bridges that its message names.
func (l *lab) faults() (found []string) {
	l.node.Do(func() {
		for _, f := range l.backend.Faults() {
			for _, word := range []string{"IPv4", "IPv6", "cni0", "cbr0"} {
				if strings.Contains(f.Message, word) {
					f.Reason += " " + word
				}
			}
			found = append(found, f.Reason)
		}
	})
	return found
}

// TestFaultsOfTheHost has settings of the host keep packets from rules that are all there, one after the other.
func TestFaultsOfTheHost(t *testing.T) {
	l := newLab(t)
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	for _, f := range families() {
		of := f.want(f.vip, 30053, "e1")
		for key, p := range of.Ports {
			p.ClusterIP = f.other
			of.Ports[key] = p
		}
		maps.Copy(want.Ports, of.Ports)
	}
	run := func(command string) { blackbox.RunOn(t, l.node, strings.Fields(command)...) }
	sysctl := func(name, value string) { l.node.Do(func() { l.node.Sysctl(name, value) }) }
	for _, bridge := range []string{"cni0", "docker0"} {
		run("ip link add " + bridge + " type bridge")
		run("ip link set " + bridge + " up")
	}
	sysctl("net/bridge/bridge-nf-call-iptables", "1")
	sysctl("net/bridge/bridge-nf-call-ip6tables", "1")
	l.node.Addr("cni0", "10.244.1.1/24", "fd00:244:1::1/64")
	l.node.Addr("docker0", "172.17.0.1/16")
	expect := func(when string, found ...string) {
		t.Helper()
		l.apply(want)
		if got := l.faults(); !slices.Equal(got, found) {
			t.Errorf("%s: found %q, want %q", when, got, found)
		}
	}
	expect("nothing")
	sysctl("net/bridge/bridge-nf-call-iptables", "0")
	expect("no pods there")
	want.Pods = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
	expect("pods of IPv4", "BridgeBypassed IPv4 cni0")
	sysctl("net/bridge/bridge-nf-call-ip6tables", "0")
	expect("pods of both", "BridgeBypassed IPv4 cni0", "BridgeBypassed IPv6 cni0")
	sysctl("net/bridge/bridge-nf-call-iptables", "1")
	want.Pods = nil
	expect("pods are not known")
	for key, p := range want.Ports {
		p.PodLinks = desired.Links{Name: "cni0"}
		want.Ports[key] = p
	}
	expect("pods by their bridge", "BridgeBypassed IPv6 cni0")
	sysctl("net/bridge/bridge-nf-call-ip6tables", "1")
	expect("all is well again")
	sysctl("net/ipv4/conf/cni0/forwarding", "0")
	sysctl("net/ipv4/conf/docker0/forwarding", "0")
	expect("the bridge of pods forwards nothing", "ForwardingDisabled IPv4 cni0")
	sysctl("net/ipv4/conf/cni0/forwarding", "1")
	expect("it forwards again")
	want.Own = []netip.Addr{families()[0].endpoint["e1"].Prev()} // on e1, beside client, which leads to a router
	sysctl("net/ipv4/conf/e1/forwarding", "0")
	expect("one of two interfaces", "ForwardingDisabled IPv4")
	sysctl("net/ipv4/conf/e1/forwarding", "1")
	want.Own = nil
	run("ip -4 route del default")
	run("ip -6 route del default")
	expect("no default route", "RouteMissing IPv4", "RouteMissing IPv6")
	run("ip route add " + families()[0].other.String() + "/32 dev cni0")
	run("ip -6 route add unreachable default metric 9999")
	expect("a route to ClusterIPs, and one that refuses", "RouteMissing IPv6")
}
