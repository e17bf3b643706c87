package blackbox_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestForwardPolicyDrop holds that what is masqueraded is forwarded, both ways,
// on a host that forwards nothing else.
func TestForwardPolicyDrop(t *testing.T) {
	eachInFirewall(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		var all asking
		for _, f := range addr.Families() {
			c.Run(c.firewall[f], "-P", "FORWARD", "DROP")
			a := blackbox.Plan(f)
			for _, s := range c.senders(f) {
				for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
					all.add(func() error { return c.expect(s, protocol, netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), want) })
					all.add(func() error { return c.expect(s, protocol, netip.AddrPortFrom(a.Node, 30001), want) })
				}
			}
			all.add(func() error {
				if _, err := ask(c.senders(f)[0], view.TCP, netip.AddrPortFrom(a.P1, blackbox.ServePort), silenceAfter); err == nil {
					return fmt.Errorf("%s: what is for no Service is forwarded", f)
				}
				return nil
			})
		}
		all.report(t)
	})
}

// TestNetworkPolicyComesFirst has kube-router and Calico refuse what is for a pod in a chain of their own, at the front of FORWARD. Rules that
// are put in later, or again, admit no masqueraded packets of strangers.
func TestNetworkPolicyComesFirst(t *testing.T) {
	eachInFirewall(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		for _, f := range addr.Families() {
			run := func(words ...string) { c.Run(append([]string{c.firewall[f]}, words...)...) }
			for _, chain := range []string{"cali-FORWARD", "KUBE-ROUTER-FORWARD"} {
				run("-N", chain)
				run("-I", "FORWARD", "-m", "comment", "--comment", "policies", "-j", chain)
			}
			run("-A", "KUBE-ROUTER-FORWARD", "-d", blackbox.Plan(f).Pods.String(), "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP")
			run("-I", "FORWARD", "-i", "none", "-j", "ACCEPT")
		}
		c.Apply(want)
		refused := func() (all asking) {
			for _, f := range addr.Families() {
				a := blackbox.Plan(f)
				for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
					for _, to := range []netip.AddrPort{netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), netip.AddrPortFrom(a.Node, 30001)} {
						all.add(func() error {
							if got, err := ask(c.senders(f)[0], protocol, to, silenceAfter); err == nil && strings.HasPrefix(got.Server, "p") {
								return fmt.Errorf("%s: a stranger comes to %s past the policy by %s: %s", f, to, protocol, said(got, err))
							}
							return nil
						})
					}
				}
			}
			return all
		}
		all := refused()
		all.report(t)
		for _, f := range addr.Families() {
			c.Run(c.firewall[f], "-D", "FORWARD", "-j", "FAIRLEAD-FORWARD")
		}
		c.Apply(want)
		all = refused()
		all.report(t)
	})
}

// TestForwardPolicyDropInOneDirection has a host that forwards nothing but what pods send, as
// many do beside kube-proxy, which admits RELATED and ESTABLISHED of all flows: what comes back
// to a pod, answers and ICMP errors, passes, and a stranger's first packet does not.
func TestForwardPolicyDropInOneDirection(t *testing.T) {
	eachInFirewall(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		for _, f := range addr.Families() {
			c.Run(c.firewall[f], "-P", "FORWARD", "DROP")
			c.Run(c.firewall[f], "-A", "FORWARD", "-s", blackbox.Plan(f).Pods.String(), "-j", "ACCEPT")
			a := blackbox.Plan(f)
			client, p1 := c.senders(f)[0], c.senders(f)[4]
			for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
				if got, err := ask(p1, protocol, netip.AddrPortFrom(a.Client, blackbox.HostPort), answerIn); err != nil || got.Server != "client" {
					t.Errorf("%s: a pod asks the world by %s: %s, want an answer of client", f, protocol, said(got, err))
				}
				// The error is about the flow, and no answer of it.
				if _, err := ask(p1, protocol, netip.AddrPortFrom(a.Client, blackbox.HostPort+1), answerIn); !errors.Is(err, netlab.ErrRefused) {
					t.Errorf("%s: a pod asks the world by %s where nobody listens: %v, want a refusal", f, protocol, err)
				}
				if _, err := ask(client, protocol, netip.AddrPortFrom(a.P1, blackbox.ServePort), silenceAfter); err == nil {
					t.Errorf("%s: the world's question to a pod by %s is forwarded", f, protocol)
				}
			}
			// Another node masquerades: to this one its question is the node's, and for no Service.
			if err := c.admits(f, c.senders(f)[3], netip.AddrPortFrom(a.P1, blackbox.ServePort)); err != nil {
				t.Error(err)
			}
		}
	})
}

// admits has the host admit what one sender begins, whose answers come from a pod that the
// host's rules admit nothing of.
func (c *cluster) admits(f addr.Family, s sender, to netip.AddrPort) error {
	c.Run(c.firewall[f], "-D", "FORWARD", "-s", blackbox.Plan(f).Pods.String(), "-j", "ACCEPT")
	c.Run(c.firewall[f], "-A", "FORWARD", "-s", addr.HostPrefix(s.from).String(), "-j", "ACCEPT")
	if got, err := ask(s, view.TCP, to, answerIn); err != nil || got.Server != "p1" {
		return fmt.Errorf("%s: the answer of a pod to a node: %s, want one of p1", f, said(got, err))
	}
	return nil
}

// TestForwardPolicyDropAndNoAnswer holds it for flows that nobody answers, such as of logs: each of
// their packets is forwarded, and those that come once the Service has gone to another pod, too.
func TestForwardPolicyDropAndNoAnswer(t *testing.T) {
	eachInFirewall(t, func(t *testing.T, c *cluster) {
		const logs = 5140
		to := func(pod func(blackbox.Addresses) netip.Addr) desired.Forwarding {
			return blackbox.Forwarding(blackbox.Service{Name: "logs", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere = blackbox.At(logs, pod(a)), true
			}})
		}
		first := func(a blackbox.Addresses) netip.Addr { return a.P1 }
		second := func(a blackbox.Addresses) netip.Addr { return a.P2 }
		for _, f := range addr.Families() {
			c.Run(c.firewall[f], "-P", "FORWARD", "DROP")
			a := blackbox.Plan(f)
			c.Apply(to(first))
			pod := c.socket(c.P1, netip.AddrPortFrom(a.P1, logs), netip.AddrPort{})
			for _, at := range []netip.AddrPort{netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), netip.AddrPortFrom(a.Node, 30001)} {
				client := c.socket(c.Client, netip.AddrPortFrom(a.Client, 0), at)
				for _, line := range []string{"one", "two", "three"} {
					if _, err := client.Write([]byte(line)); err != nil {
						t.Fatal(err)
					}
					if got, _ := c.heard(pod, answerIn); got != line {
						t.Fatalf("%s: the pod heard %q of what was sent to %s, want %q", f, got, at, line)
					}
				}
				c.Apply(to(second))
				if _, err := client.Write([]byte("four")); err != nil {
					t.Fatal(err)
				}
				if got, _ := c.heard(pod, answerIn); got != "four" {
					t.Fatalf("%s: the pod heard %q of what was sent to %s before its flow was ended", f, got, at)
				}
				c.Apply(to(first))
			}
		}
	})
}

// TestNarrowPaths has a way to the pod that can pass short packets only, and then one to the
// client. What is said of that (RFC 1191, RFC 8201) must reach whoever sends, client or pod, in
// the words of the flow that he knows, also on a host that forwards nothing else.
func TestNarrowPaths(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.Apply(blackbox.Forwarding(blackbox.Service{Name: "far", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P3), true
		}}))
		ask := func(s sender, to netip.AddrPort) {
			t.Helper()
			flow, err := s.dial(view.TCP, to, answerIn)
			if err != nil {
				t.Errorf("%s -> %s: %v", s.name, to, err)
				return
			}
			defer flow.Close()
			if got, err := flow.Long(20000).Ask(); err != nil || got.Server != "p3" {
				t.Errorf("%s -> %s: %s, want an answer of p3", s.name, to, said(got, err))
			}
		}
		blackbox.RunOn(t, c.Other, "ip", "link", "set", "p3", "mtu", "1300")
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			client, node, p1 := c.senders(f)[0], c.senders(f)[2], c.senders(f)[4]
			vip, clusterIP := netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, 1), 80)
			ask(p1, clusterIP)
			ask(node, clusterIP)
			if program, has := c.firewall[f]; has {
				c.Run(program, "-P", "FORWARD", "DROP")
			}
			ask(client, vip)
		}
		blackbox.RunOn(t, c.Other, "ip", "link", "set", "p3", "mtu", "1500")
		c.Run("ip", "link", "set", "lan", "mtu", "1290") // not what the pod may remember of the other way
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			ask(c.senders(f)[0], netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80))
		}
	})
}
