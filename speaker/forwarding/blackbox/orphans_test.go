package blackbox_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
)

// successions are all pairs of modes: that of a process that ended, and that of the next.
func successions() []contender {
	var all []contender
	modes := []forwarding.Mode{forwarding.IPTables, forwarding.NFTables}
	for _, before := range modes {
		for _, after := range modes {
			next, latest := before, new(blackbox.Backend)
			all = append(all, contender{
				name: fmt.Sprintf("%s-then-%s", before, after),
				create: func() (blackbox.Backend, error) {
					mode := next
					next = after
					made, err := newWhole(mode)
					*latest = made
					return made, err
				},
				latest: latest,
			})
		}
	}
	return all
}

// TestServicesDeletedWhileNobodyLooked has a Service go, and another lose its NodePort,
// while no process runs. The next one deletes the UDP flows that the rules in the kernel say
// were theirs, and no others: not those of Services that stay, nor those that somebody else
// translates to the same pod.
func TestServicesDeletedWhileNobodyLooked(t *testing.T) {
	t.Parallel()
	each(t, successions(), func(t *testing.T, c *cluster) { deletedUnseen(t, c, func(desired.Forwarding) {}) })
}

// TestServicesDeletedInTheInstantOfTheEnd has the process end when the rules are gone, and the
// flows are not.
func TestServicesDeletedInTheInstantOfTheEnd(t *testing.T) {
	t.Parallel()
	each(t, successions(), func(t *testing.T, c *cluster) {
		deletedUnseen(t, c, c.applyAlone)
		if sets := c.Run("ipset", "list", "-n"); strings.Contains(sets, "journal") {
			t.Errorf("the note of it stays: %s", sets)
		}
	})
}

// TestServicesDeletedInTheInstantOfTwoEnds has the next process end in the same instant, too.
func TestServicesDeletedInTheInstantOfTwoEnds(t *testing.T) {
	t.Parallel()
	each(t, successions(), func(t *testing.T, c *cluster) {
		deletedUnseen(t, c, func(want desired.Forwarding) {
			c.applyAlone(want)
			c.Restart()
			c.applyAlone(want)
		})
		if sets := c.Run("ipset", "list", "-n"); strings.Contains(sets, "journal") {
			t.Errorf("the note of it stays: %s", sets)
		}
	})
}

// applyAlone applies what is wanted and does not clean up after it.
func (c *cluster) applyAlone(want desired.Forwarding) {
	c.t.Helper()
	c.Node.Do(func() {
		if missing, err := (*c.latest).(wholeBackend).Forwarder.Apply(c.t.Context(), want); err != nil || len(missing) > 0 {
			c.t.Errorf("%d ports are missing: %v", len(missing), err)
		}
	})
}

// deletedUnseen is told what else happens before the process ends.
func deletedUnseen(t *testing.T, c *cluster, last func(want desired.Forwarding)) {
	t.Helper()
	c.keepRestingFlows()
	to := func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P2), true
		p.ExternalIPs = []netip.Addr{blackbox.Nth(a.ExternalIPs, 42)}
	}
	stays := blackbox.Service{Name: "stays", N: 40, Fill: func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P2), true
	}}
	shrinks := blackbox.Service{Name: "shrinks", N: 41, Fill: stays.Fill}
	c.Apply(blackbox.Forwarding(stays, shrinks, blackbox.Service{Name: "goes", N: 42, Fill: to}))
	for _, f := range addr.Families() {
		c.translateElsewhere(blackbox.Plan(f))
	}
	var lost, kept []established
	gone := map[netip.AddrPort]bool{}
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		from := c.senders(f)
		for _, at := range []netip.AddrPort{
			netip.AddrPortFrom(blackbox.Nth(a.VIPs, 42), 80), netip.AddrPortFrom(blackbox.Nth(a.ExternalIPs, 42), 80),
			netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, 42), 80), netip.AddrPortFrom(a.Node, 30042), netip.AddrPortFrom(a.Node, 30041),
		} {
			gone[at] = true
			lost = append(lost, c.open(from[0], at))
		}
		for _, at := range []netip.AddrPort{
			netip.AddrPortFrom(blackbox.Nth(a.VIPs, 40), 80), netip.AddrPortFrom(blackbox.Nth(a.VIPs, 41), 80),
			netip.AddrPortFrom(a.Node, 30040), netip.AddrPortFrom(a.P2, blackbox.ServePort), netip.AddrPortFrom(a.Aside, elsewhere),
		} {
			kept = append(kept, c.open(from[0], at))
		}
	}
	c.stopTranslatingElsewhere() // so that only the connection table knows of it
	want := blackbox.Forwarding(stays, shrinks)
	for key, p := range want.Ports {
		if key.Service.Name == shrinks.Name {
			p.NodePort = 0
			want.Ports[key] = p
		}
	}
	last(want)
	c.Restart()
	c.Apply(want)
	for _, f := range addr.Families() {
		c.Node.Do(func() {
			if _, err := conntrack.Delete(f, view.UDP, &sync.Mutex{}, func(flow conntrack.Flow) bool {
				if gone[flow.To] {
					t.Errorf("a flow to %s, which %s answers, is left", flow.To, flow.Answers)
				}
				return false
			}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := live(kept); err != nil {
		t.Error(err)
	}
	for _, e := range lost {
		if got, err := e.flow.AskFor(silenceAfter); err == nil {
			t.Errorf("%s: %s, though nobody serves that any more", e.what, said(got, err))
		}
	}
}

// open opens a UDP flow, which must be answered by p2.
func (c *cluster) open(from sender, to netip.AddrPort) established {
	c.t.Helper()
	what := fmt.Sprintf("%s -> %s", from.name, to)
	flow, err := from.host.Dial("udp", netip.AddrPortFrom(from.from, 0), to, answerIn)
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	c.t.Cleanup(flow.Close)
	first, err := flow.Ask()
	if err != nil || first.Server != "p2" {
		c.t.Fatalf("%s: %s, want an answer of p2", what, said(first, err))
	}
	return established{flow, what, first}
}

// elsewhere is a port of the node that somebody else translates.
const elsewhere = 5353

// translateElsewhere has what is sent to a port of the node answered by an endpoint of
// ours, as a hostPort does.
func (c *cluster) translateElsewhere(a blackbox.Addresses) {
	c.t.Helper()
	family := map[addr.Family]string{addr.IPv4: "ip", addr.IPv6: "ip6"}[a.Family]
	c.Run("nft", fmt.Sprintf("add table %[1]s elsewhere; add chain %[1]s elsewhere arriving { type nat hook prerouting priority -150; }; "+
		"add rule %[1]s elsewhere arriving udp dport %[2]d dnat to %[3]s", family, elsewhere, netip.AddrPortFrom(a.P2, blackbox.ServePort)))
}

func (c *cluster) stopTranslatingElsewhere() {
	c.t.Helper()
	c.Run("nft", "delete table ip elsewhere; delete table ip6 elsewhere")
}

// keepRestingFlows has UDP flows that rest not be forgotten while the machine does other
// things.
func (c *cluster) keepRestingFlows() {
	c.Node.Do(func() {
		c.Node.Sysctl("net/netfilter/nf_conntrack_udp_timeout", "3600")
		c.Node.Sysctl("net/netfilter/nf_conntrack_udp_timeout_stream", "3600")
	})
}
