package blackbox_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// plugin is a network plugin that writes rules of iptables of its own, as their documentation and reports of iptables-save have them.
type plugin struct {
	name  string
	rules string // for iptables-restore; POD is the way of each pod of the node, FAMILY that of the addresses
	// jumps are the chains that it keeps at the front of built-in ones: "table built-in own".
	jumps []string
	// policy is the chain by which it admits packets to pods; "": it does so elsewhere.
	policy string
	// marks are what the first packets to a pod of this node leave with, of the bits that are the plugin's.
	marks, bits uint32
}

// plugins are those that forward no Services themselves. Calico marks what a policy admits, and forgets which packets came from a pod; a packet that no
// chain of a pod admits ends there. Cilium marks what the host sends; it and Antrea admit all that is of pods, which they police elsewhere.
var plugins = []plugin{
	{
		name: "Calico",
		rules: `*raw
:cali-PREROUTING - [0:0]
:cali-OUTPUT - [0:0]
:cali-rpf-skip - [0:0]
:cali-from-host-endpoint - [0:0]
:cali-to-host-endpoint - [0:0]
-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i POD -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -j cali-rpf-skip
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
-A cali-PREROUTING -m mark --mark 0x0/0x40000 -j cali-from-host-endpoint
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -j MARK --set-xmark 0x0/0xf0000
-A cali-OUTPUT -j cali-to-host-endpoint
-A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
*mangle
:cali-PREROUTING - [0:0]
:cali-POSTROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
:cali-to-host-endpoint - [0:0]
-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-PREROUTING -j cali-from-host-endpoint
-A cali-POSTROUTING -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-POSTROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-POSTROUTING -m conntrack --ctstate DNAT -j cali-to-host-endpoint
COMMIT
*nat
:cali-PREROUTING - [0:0]
:cali-OUTPUT - [0:0]
:cali-POSTROUTING - [0:0]
:cali-fip-dnat - [0:0]
:cali-nat-outgoing - [0:0]
-A cali-PREROUTING -j cali-fip-dnat
-A cali-OUTPUT -j cali-fip-dnat
-A cali-POSTROUTING -j cali-nat-outgoing
-A cali-nat-outgoing -m set --match-set caliFAMILY0pools src -m set ! --match-set caliFAMILY0pools dst -j MASQUERADE --random-fully
COMMIT
*filter
:cali-INPUT - [0:0]
:cali-FORWARD - [0:0]
:cali-OUTPUT - [0:0]
:cali-wl-to-host - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-to-wl-dispatch - [0:0]
:cali-from-hep-forward - [0:0]
:cali-cidr-block - [0:0]
:cali-fw-pod - [0:0]
:cali-tw-pod - [0:0]
:cali-pi-policy - [0:0]
-A cali-INPUT -i POD -g cali-wl-to-host
-A cali-INPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-INPUT -j MARK --set-xmark 0x0/0xf0000
-A cali-wl-to-host -j cali-from-wl-dispatch
-A cali-wl-to-host -j ACCEPT
-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
-A cali-FORWARD -i POD -j cali-from-wl-dispatch
-A cali-FORWARD -o POD -j cali-to-wl-dispatch
-A cali-FORWARD -j cali-cidr-block
-A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -o POD -j RETURN
-A cali-OUTPUT -j MARK --set-xmark 0x0/0xf0000
-A cali-from-wl-dispatch -i POD -g cali-fw-pod
-A cali-to-wl-dispatch -o POD -g cali-tw-pod
-A cali-fw-pod -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-pod -m conntrack --ctstate INVALID -j DROP
-A cali-fw-pod -j MARK --set-xmark 0x0/0x10000
-A cali-fw-pod -j MARK --set-xmark 0x10000/0x10000
-A cali-tw-pod -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-tw-pod -m conntrack --ctstate INVALID -j DROP
-A cali-tw-pod -j MARK --set-xmark 0x0/0x10000
-A cali-tw-pod -j cali-pi-policy
-A cali-tw-pod -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-tw-pod -j DROP
-A cali-pi-policy -j MARK --set-xmark 0x10000/0x10000
-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
-A FORWARD -j MARK --set-xmark 0x10000/0x10000
COMMIT
`,
		jumps: []string{
			"raw PREROUTING cali-PREROUTING", "raw OUTPUT cali-OUTPUT", "mangle PREROUTING cali-PREROUTING", "mangle POSTROUTING cali-POSTROUTING",
			"nat PREROUTING cali-PREROUTING", "nat OUTPUT cali-OUTPUT", "nat POSTROUTING cali-POSTROUTING",
			"filter INPUT cali-INPUT", "filter FORWARD cali-FORWARD", "filter OUTPUT cali-OUTPUT",
		},
		policy: "cali-pi-policy", marks: 0x10000, bits: 0xf0000,
	},
	{
		name: "Cilium",
		rules: `*nat
:CILIUM_POST_nat - [0:0]
-A CILIUM_POST_nat -s PODS ! -d PODS ! -o cilium_+ -j MASQUERADE
-A CILIUM_POST_nat -m mark --mark 0xa00/0xe00 -j ACCEPT
COMMIT
*filter
:CILIUM_INPUT - [0:0]
:CILIUM_FORWARD - [0:0]
:CILIUM_OUTPUT - [0:0]
-A CILIUM_INPUT -m mark --mark 0x200/0xf00 -j ACCEPT
-A CILIUM_FORWARD -i POD -j ACCEPT
-A CILIUM_FORWARD -o POD -j ACCEPT
-A CILIUM_OUTPUT -m mark --mark 0xa00/0xe00 -j ACCEPT
-A CILIUM_OUTPUT -m mark ! --mark 0xe00/0xf00 -m mark ! --mark 0xd00/0xf00 -m mark ! --mark 0xa00/0xe00 -j MARK --set-xmark 0xc00/0xf00
COMMIT
`,
		jumps: []string{"nat POSTROUTING CILIUM_POST_nat", "filter INPUT CILIUM_INPUT", "filter FORWARD CILIUM_FORWARD", "filter OUTPUT CILIUM_OUTPUT"},
		bits:  0xf00,
	},
	{
		name: "Antrea",
		rules: `*mangle
:ANTREA-MANGLE - [0:0]
:ANTREA-OUTPUT - [0:0]
-A ANTREA-OUTPUT -m addrtype --src-type LOCAL -o POD -j MARK --set-xmark 0x80000000/0x80000000
COMMIT
*nat
:ANTREA-POSTROUTING - [0:0]
-A ANTREA-POSTROUTING -s PODS -m set ! --match-set caliFAMILY0pools dst -j MASQUERADE
COMMIT
*filter
:ANTREA-FORWARD - [0:0]
-A ANTREA-FORWARD -i POD -j ACCEPT
-A ANTREA-FORWARD -o POD -j ACCEPT
COMMIT
`,
		jumps: []string{"mangle PREROUTING ANTREA-MANGLE", "mangle OUTPUT ANTREA-OUTPUT", "nat POSTROUTING ANTREA-POSTROUTING", "filter FORWARD ANTREA-FORWARD"},
		bits:  0x80000000,
	},
}

// program is the iptables that the plugin and the backend write by.
func (c *cluster) program(f addr.Family) string {
	if of, has := c.firewall[f]; has {
		return of
	}
	return map[addr.Family]string{addr.IPv4: "iptables-nft", addr.IPv6: "ip6tables-nft"}[f]
}

// write has the plugin write its rules, and puts it at the front.
func (p plugin) write(c *cluster) {
	for _, f := range addr.Families() {
		a, family := blackbox.Plan(f), "4"
		if f == addr.IPv6 {
			family = "6"
		}
		var rules strings.Builder
		for line := range strings.Lines(p.rules) {
			line = strings.NewReplacer("FAMILY", family, "PODS", a.Pods.String()).Replace(line)
			if strings.Contains(line, " POD ") {
				rules.WriteString(strings.ReplaceAll(line, " POD ", " p1 "))
				line = strings.ReplaceAll(line, " POD ", " p2 ")
			}
			rules.WriteString(line)
		}
		inet := map[addr.Family]string{addr.IPv4: "inet", addr.IPv6: "inet6"}[f]
		c.Run("sh", "-c", fmt.Sprintf("ipset create -exist cali%s0pools hash:net family %s && ipset add -exist cali%[1]s0pools %[3]s", family, inet, a.Pods))
		c.Run("sh", "-c", c.program(f)+"-restore --noflush <<'end'\n"+rules.String()+"end")
	}
	p.front(c, "")
}

// front puts the plugin's jumps at the front, as it does when it starts, and those of Calico when it finds them elsewhere.
func (p plugin) front(c *cluster, remove string) {
	for _, f := range addr.Families() {
		for _, j := range p.jumps {
			at := strings.Fields(j)
			if remove != "" {
				c.Run(c.program(f), "-t", at[0], remove, at[1], "-j", at[2])
			}
			c.Run(c.program(f), "-t", at[0], "-I", at[1], "-j", at[2])
		}
	}
}

// TestBesideNetworkPlugins has the rules of network plugins beside ours, that were there before and that come again to the front: all Services
// are served with the source that the pods are to see, packets to pods leave with the plugin's marks and none of ours, and what
// a policy refuses is refused.
func TestBesideNetworkPlugins(t *testing.T) {
	for _, p := range plugins {
		t.Run(p.name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, c *cluster) {
				p.write(c)
				want := blackbox.Forwarding(blackbox.Services()...)
				c.Apply(want)
				c.nft(`
table inet others {
	counter seen { }
	counter changed { }
	chain leaving {
		type filter hook postrouting priority srcnat + 10;
		iifname != { "p1", "p2" } oifname { "p1", "p2" } ct direction original ct status dnat ct state new counter name seen
		iifname "lan" oifname { "p1", "p2" } ct direction original ct status dnat ct state new meta mark and $bits != $marks counter name changed
	}
}`, "$bits", fmt.Sprint(p.bits|0x4000), "$marks", fmt.Sprint(p.marks))
				if err := errors.Join(c.askAbout(0, want), p.refuses(c)); err != nil {
					t.Errorf("the plugin was there first: %v", err)
				}
				p.front(c, "-D")
				if err := errors.Join(c.askEndpoints(want), p.refuses(c)); err != nil {
					t.Errorf("the plugin is at the front again: %v", err)
				}
				if c.counted("seen") == 0 || c.counted("changed") > 0 {
					t.Errorf("of %d first packets to pods %d had other marks", c.counted("seen"), c.counted("changed"))
				}
			})
		})
	}
}

// askEndpoints has all senders ask Services that have endpoints. What the others refuse, a plugin may have admitted before, as with kube-proxy.
func (c *cluster) askEndpoints(want desired.Forwarding) error {
	var all asking
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		for _, s := range c.senders(f) {
			for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
				for _, n := range []byte{1, 2, 7, 8} {
					for _, to := range []netip.AddrPort{
						netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, n), 80), netip.AddrPortFrom(blackbox.Nth(a.VIPs, n), 80), netip.AddrPortFrom(a.Node, 30000+uint16(n)),
					} {
						all.add(func() error { return c.expect(s, protocol, to, want) })
					}
				}
			}
		}
	}
	return all.all()
}

// refuses has the plugin's policy of pods, if it has one, admit nothing for a moment. It returns what the client reaches then.
func (p plugin) refuses(c *cluster) error {
	if p.policy == "" {
		return nil
	}
	var all asking
	for _, f := range addr.Families() {
		c.Run(c.program(f), "-F", p.policy)
		a := blackbox.Plan(f)
		for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
			for _, to := range []netip.AddrPort{
				netip.AddrPortFrom(blackbox.Nth(a.VIPs, 2), 80), netip.AddrPortFrom(blackbox.Nth(a.VIPs, 5), 80),
				netip.AddrPortFrom(a.Node, 30002), netip.AddrPortFrom(a.Node, 30005),
			} {
				all.add(func() error {
					if got, err := ask(c.senders(f)[0], protocol, to, silenceAfter); err == nil {
						return fmt.Errorf("%s: a policy refuses the client, which comes to %s: %s", protocol, to, said(got, err))
					}
					return nil
				})
			}
		}
	}
	err := all.all()
	for _, f := range addr.Families() {
		c.Run(c.program(f), "-A", p.policy, "-j", "MARK", "--set-xmark", fmt.Sprintf("%#x/%#[1]x", p.marks))
	}
	return err
}
