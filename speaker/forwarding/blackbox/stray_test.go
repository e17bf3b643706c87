package blackbox_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// strays counts, on the node, packets to the ranges of ClusterIPs that leave it: nobody has
// such an address.
const strays = `
table inet strays {
	counter left { }
	chain leaving {
		type filter hook postrouting priority srcnat + 10;
		ip daddr 10.96.0.0/16 counter name left
		ip6 daddr fd00:96::/112 counter name left
	}
}`

// TestNothingStrays sends, over TCP and UDP, to ports that a ClusterIP does not have and to
// addresses of the ranges that no Service has: the former are refused, the latter dropped,
// and none of these packets goes where the default route leads. It does so as the ranges come,
// narrow down and go, and after somebody has flushed the rules.
func TestNothingStrays(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := everyKind()
		const served, unserved, dropping, vacant = 1, 4, 9, 199 // the last bytes of ClusterIPs
		before := map[byte]error{
			served: netlab.ErrRefused, unserved: netlab.ErrRefused, dropping: netlab.ErrRefused, vacant: netlab.ErrSilence,
		}
		after := maps.Clone(before)
		after[served] = netlab.ErrSilence
		count := func() { c.Run("sh", "-c", "nft -f - <<'end'"+strays+"\nend") }
		ask := func(when string, expected map[byte]error) {
			t.Helper()
			var all asking
			for _, f := range addr.Families() {
				for _, s := range c.senders(f) {
					for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
						for n, expected := range expected {
							to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).ClusterIPs, n), 81)
							all.add(func() error {
								limit := answerIn
								if errors.Is(expected, netlab.ErrSilence) {
									limit = silenceAfter
								}
								if _, err := ask(s, protocol, to, limit); !errors.Is(err, expected) {
									return fmt.Errorf("%s: %s: %s (%s) -> %s: %w, want %w", when, protocol, s.name, s.from, to, err, expected)
								}
								return nil
							})
						}
					}
				}
			}
			all.report(t)
		}
		left := func(some bool, when string) {
			t.Helper()
			if out := c.Run("nft", "list", "counter", "inet", "strays", "left"); strings.Contains(out, "packets 0 ") == some {
				t.Errorf("%s: of packets to the ranges some left the node is to be %t: %s", when, some, out)
			}
		}

		c.Apply(want)
		count()
		ask("no ranges are known", before)
		left(true, "no ranges are known")
		c.Run("nft", "delete", "table", "inet", "strays")

		for _, f := range addr.Families() {
			want.ServiceRanges = append(want.ServiceRanges, blackbox.Plan(f).ClusterIPs)
		}
		c.Apply(want)
		count()
		ask("the ranges are known", before)
		left(false, "the ranges are known")
		if err := c.askAbout(1, want); err != nil {
			t.Errorf("Services beside: %v", err)
		}

		c.Run("sh", "-c", c.flush) // the counter, too, where that is nft's
		c.Apply(want)
		c.Run("sh", "-c", "nft delete table inet strays; true")
		count()
		ask("after a flush", before)
		left(false, "after a flush")
		c.Restart()
		c.Apply(want)
		ask("after a restart", before)
		left(false, "after a restart")

		want.ServiceRanges = want.ServiceRanges[:1] // IPv4 alone
		for key := range want.Ports {
			if key.Service.Name == "cluster" {
				delete(want.Ports, key)
			}
		}
		c.Apply(want)
		ask("a Service and a range are gone", after)
	})
}

// TestOwnAddressesWithinTheRanges has ranges of ClusterIPs with addresses of the node, of pods
// and of Services' endpoints in them, which they should not have: what the node itself answers
// and what Services lead to is there all the same.
func TestOwnAddressesWithinTheRanges(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := everyKind()
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			want.ServiceRanges = append(want.ServiceRanges, a.ClusterIPs, addr.HostPrefix(a.Node), addr.HostPrefix(a.Aside), addr.HostPrefix(a.P1))
		}
		c.Apply(want)
		if err := c.askAbout(0, want); err != nil {
			t.Error(err)
		}
		var all asking
		for key := range want.Ports {
			a := blackbox.Plan(key.Family)
			for _, s := range c.senders(key.Family) {
				for _, to := range []netip.AddrPort{
					netip.AddrPortFrom(a.Node, blackbox.HostPort), netip.AddrPortFrom(a.Aside, blackbox.HostPort), netip.AddrPortFrom(a.Node, 1),
				} {
					all.add(func() error { return c.expect(s, key.Protocol, to, want) })
				}
			}
		}
		all.report(t)
	})
}

// TestWhatOthersTranslateGoesItsWay has somebody else translate what goes to an address in the
// ranges of ClusterIPs and of VIPs that no Service has, after our own rules have seen it, as another proxy does with a
// Service of its own.
func TestWhatOthersTranslateGoesItsWay(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := everyKind()
		var rules strings.Builder
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			want.ServiceRanges, want.Refused = append(want.ServiceRanges, a.ClusterIPs), append(want.Refused, a.Nobody)
			ip := map[addr.Family]string{addr.IPv4: "ip", addr.IPv6: "ip6"}[f]
			for _, hook := range []string{"prerouting", "output"} {
				for _, to := range []netip.Prefix{a.ClusterIPs, a.Nobody} {
					fmt.Fprintf(&rules, "add table %[1]s others; add chain %[1]s others %[2]s { type nat hook %[2]s priority -90; }; "+
						"add rule %[1]s others %[2]s %[1]s daddr %[3]s tcp dport 81 dnat to %[4]s;", ip, hook,
						blackbox.Nth(to, 199), netip.AddrPortFrom(a.P2, blackbox.ServePort))
				}
			}
		}
		c.Apply(want)
		c.Run("nft", rules.String())
		var all asking
		for _, f := range addr.Families() {
			for _, s := range c.senders(f)[:5] {
				for _, to := range []netip.Prefix{blackbox.Plan(f).ClusterIPs, blackbox.Plan(f).Nobody} {
					all.add(func() error {
						got, err := ask(s, view.TCP, netip.AddrPortFrom(blackbox.Nth(to, 199), 81), answerIn)
						if err != nil || got.Server != "p2" {
							return fmt.Errorf("%s: %s -> %s: %s, want p2", f, s.name, to, said(got, err))
						}
						return nil
					})
				}
			}
		}
		all.report(t)
	})
}
