package nftables

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables/expr"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// cluster is a network whose node has this backend.
type cluster struct {
	*blackbox.Cluster
	t       *testing.T
	backend *Backend // the latest
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterOf(t, func(*Backend) {})
}

// newClusterOf has backends that are made in another way.
func newClusterOf(t *testing.T, change func(*Backend)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	c.Cluster = blackbox.NewCluster(t, func() (blackbox.Backend, error) {
		c.backend = New(Config{Log: blackbox.Quiet()})
		change(c.backend)
		return c.backend, nil
	})
	return c
}

// old is a backend on a kernel that knows no tables that persist.
func old(b *Backend) { b.link.persists = false }

// state is all that the kernel has of ours. Affinity slots are left out: which endpoint has which depends
// on who came first.
func (c *cluster) state() string {
	c.t.Helper()
	var lines []string
	c.Node.Do(func() {
		for _, f := range c.backend.families {
			found, err := f.read()
			if err != nil {
				c.t.Error(err)
				return
			}
			for i, e := range found.elements {
				name := "chain"
				switch i.set {
				case chains:
				case affinityEndpoints, localAffinityEndpoints, affinityPorts, nodeAffinityPorts, affinitySlots, nodeAffinitySlots:
					i.key, e.was = i.key[:max(len(i.key)-4, 0)], ""
					fallthrough
				default:
					name = f.sets[i.set].Name
				}
				lines = append(lines, fmt.Sprintf("%s %s %q %q", f.Family, name, i.key, e.was))
			}
		}
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// generation is the number of the kernel's latest transaction.
func (c *cluster) generation() uint32 {
	c.t.Helper()
	return blackbox.Generation(c.t, c.Node)
}

// TestAnyStateToAnyState holds that what the kernel has depends on the wanted state
// alone: not on what was there before, nor on how often it is applied.
func TestAnyStateToAnyState(t *testing.T) {
	c := newCluster(t)
	deadline := time.Now().Add(8 * time.Second)
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(deadline) {
			return // enough of the generator's states were seen
		}
		first, second := blackbox.Draw(rt, "first"), blackbox.Draw(rt, "second")
		c.Cleanup()
		c.Apply(second)
		fresh := c.state()
		same := func(what string) {
			if got := c.state(); got != fresh {
				rt.Fatalf("%s:\n%s\nwant\n%s", what, got, fresh)
			}
			for _, f := range c.backend.families {
				if n := strings.Count("\n"+fresh, "\n"+f.Family.String()) - strings.Count("\n"+fresh, "\n"+f.Family.String()+" chain"); f.size != n {
					rt.Fatalf("%s: %s has %d elements, and %d are counted", what, f.Family, n, f.size)
				}
			}
		}
		c.Apply(first)
		c.Apply(second)
		same("the state depends on the path")
		c.Apply(second)
		same("applying twice changed it")
		c.Apply(first)
		c.Restart()
		c.Apply(second)
		same("after a restart")
	})
}

// TestEveryFormIsShown holds that the nft program reads all that we write: some of its
// versions abort, and with them other programs that use its library.
func TestEveryFormIsShown(t *testing.T) {
	c := newCluster(t)
	sticky := func(local bool) func(a blackbox.Addresses, p *desired.Port) {
		return func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P2), blackbox.At(blackbox.ServePort, a.P1, a.P2)
			p.ExternalLocal, p.InternalLocal, p.Affinity = local, local, time.Hour
		}
	}
	c.Apply(blackbox.Forwarding(append(blackbox.Services(),
		blackbox.Service{Name: "sticky", N: 40, Fill: sticky(false)}, blackbox.Service{Name: "sticky-local", N: 41, Fill: sticky(true)})...))
	out := c.Run("nft", "list", "ruleset")
	for _, want := range []string{
		`comment "shop/sticky:web"`, "update @affinity", "delete @affinity", "numgen random mod 2 offset", "ct state invalid",
		"map @local-affinity-endpoints", "fib daddr type local", "reject",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nft does not show %q:\n%s", want, out)
		}
	}
	// Flows to one endpoint that begin at the same time must not race for the next free source port.
	others := strings.Count(out, "goto masquerade ") + strings.Count(out, "chain masquerade ") + strings.Count(out, `"masquerade `)
	if all, random := strings.Count(out, "masquerade ")-others, strings.Count(out, "masquerade fully-random comment "); all != random || random != 4 {
		t.Errorf("%d of %d rules masquerade with random source ports, want two for each family:\n%s", random, all, out)
	}
	wanted := map[string]int{}
	for _, f := range c.backend.families {
		for name, u := range f.chains {
			wanted[name]++
			// The comment is the end of a rule, the digest the end of the comment.
			for _, stamp := range strings.Split(u.chain.value, "\n")[1:] {
				if !strings.Contains(out, stamp) {
					t.Errorf("nft does not show the rule %q of %s", stamp, name)
				}
			}
		}
	}
	for name, n := range wanted {
		if shown := strings.Count(out, "\tchain "+name+" {"); shown != n {
			t.Errorf("chain %s is shown %d times, want %d", name, shown, n)
		}
	}
	if strings.Contains(out, "invalid type") {
		t.Errorf("nft does not know what it shows:\n%s", out)
	}
}

// TestDamageIsRepaired changes what is ours in the ways that people and programs do.
func TestDamageIsRepaired(t *testing.T) {
	t.Run("a table that persists", func(t *testing.T) { damageIsRepaired(t, newCluster(t), damages()) })
	t.Run("an older kernel", func(t *testing.T) {
		damageIsRepaired(t, newClusterOf(t, old), append(damages(), "nft add table ip fairlead { flags dormant; }"))
	})
}

func damageIsRepaired(t *testing.T, c *cluster, damages []string) {
	t.Helper()
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	sound := c.state()
	repaired := func() int {
		n := 0
		for _, f := range addr.Families() {
			_, repairs := c.backend.Tally(f)
			n += repairs
		}
		return n
	}
	for _, damage := range damages {
		before := repaired()
		c.Run("sh", "-c", quoted(damage))
		var disturbed bool
		c.Node.Do(func() { disturbed = c.backend.disturbed() })
		if !disturbed {
			t.Errorf("after %q nobody is told", damage)
		}
		c.Apply(want)
		if got := c.state(); got != sound {
			t.Errorf("after %q:\n%s\nwant\n%s", damage, got, sound)
		}
		if repaired() == before {
			t.Errorf("after %q no repair is counted", damage)
		}
		c.Node.Do(func() { disturbed = c.backend.disturbed() })
		if disturbed {
			t.Errorf("after %q and the repair somebody is told", damage)
		}
	}
}

// quoted is a command of nft as a shell takes it.
func quoted(command string) string {
	return strings.NewReplacer("{", `\{`, "}", `\}`, ";", `\;`).Replace(command)
}

// damages are what people and programs do to a table.
func damages() []string {
	return []string{
		"nft flush ruleset",
		"nft delete table ip fairlead",
		"nft flush table ip6 fairlead",
		"nft flush chain ip fairlead prerouting",
		"nft flush chain ip6 fairlead cluster-3",
		"nft insert rule ip fairlead cluster-1 drop",
		"nft add rule ip fairlead postrouting drop",
		"nft flush map ip fairlead endpoints",
		"nft flush set ip6 fairlead addresses",
		"nft flush set ip fairlead pods",
		"nft add element ip fairlead nodes { 192.0.2.200-192.0.2.210 }",
		"nft delete element ip fairlead services { 10.96.0.1 . tcp . 80 }",
		"nft add chain ip fairlead own",
		"nft add chain ip6 fairlead own { type filter hook input priority 0; policy drop; }",
		"nft add chain ip fairlead prerouting { policy drop; }",
	}
}

// TestAForeignRuleInPlaceOfOursIsReplaced has others put a rule where one of ours was, comment and all, so that
// there are as many as before. It is noticed, also by another process.
func TestAForeignRuleInPlaceOfOursIsReplaced(t *testing.T) {
	c := newClusterOf(t, old)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	sound := c.rules()
	for _, restart := range []bool{false, true} {
		for _, f := range addr.Families() {
			family := map[addr.Family]string{addr.IPv4: "ip", addr.IPv6: "ip6"}[f]
			chain := c.Run("nft", "-a", "list", "chain", family, "fairlead", "prerouting")
			rule := regexp.MustCompile(`(?m)comment ("[^"]*") # handle (\d+)$`).FindStringSubmatch(chain)
			if rule == nil {
				t.Fatalf("no rule has a comment:\n%s", chain)
			}
			c.Run("nft", "replace", "rule", family, "fairlead", "prerouting", "handle", rule[2], "return", "comment", rule[1])
			if c.rules() == sound {
				t.Fatal("the rule is not replaced")
			}
			if restart {
				c.Restart()
				old(c.backend)
			}
			if c.Apply(want); c.rules() != sound {
				t.Errorf("%s, restart %t: the rules are\n%s\nwant\n%s", f, restart, c.rules(), sound)
			}
		}
	}
}

// rules are what nft shows of our rules that dispatch packets.
func (c *cluster) rules() string {
	c.t.Helper()
	return c.Run("nft", "-s", "list", "chain", "ip", "fairlead", "prerouting") + c.Run("nft", "-s", "list", "chain", "ip6", "fairlead", "prerouting")
}

// TestOnlyDifferencesAreWritten holds that an idle Apply, a restart and the changes of
// others write nothing.
func TestOnlyDifferencesAreWritten(t *testing.T) {
	c := newCluster(t)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	silent := func(what string, does func()) {
		t.Helper()
		before := c.generation()
		does()
		if after := c.generation(); after != before {
			t.Errorf("%s: %d transactions", what, after-before)
		}
	}
	silent("idle", func() { c.Apply(want) })
	c.Restart() // which probes the kernel
	silent("after a restart", func() { c.Apply(want) })
	c.Run("nft", "add", "table", "ip", "others")
	silent("after others wrote", func() { c.Apply(want) })
	less := blackbox.Forwarding(blackbox.Services()[1:]...)
	before := c.generation()
	c.Apply(less)
	if n := c.generation() - before; n != 2 {
		t.Errorf("one change took %d transactions, want one for each family", n)
	}
	var disturbed bool
	c.Node.Do(func() { disturbed = c.backend.disturbed() })
	if disturbed {
		t.Error("our own transactions are taken for those of others")
	}
}

// TestCleanupLeavesNothing holds that others' tables stay and ours go.
func TestCleanupLeavesNothing(t *testing.T) {
	c := newCluster(t)
	c.Run("nft", "add", "table", "ip", "others")
	before := c.Run("nft", "list", "ruleset")
	c.Apply(blackbox.Forwarding(blackbox.Services()...))
	c.Cleanup()
	if got := c.Run("nft", "list", "ruleset"); got != before {
		t.Errorf("after cleanup:\n%s\nwant\n%s", got, before)
	}
	c.Cleanup() // of nothing is fine
}

// TestAnEarlierLayoutIsReplaced has a table of our name with rules and sets that are
// none of this version's.
func TestAnEarlierLayoutIsReplaced(t *testing.T) {
	c := newCluster(t)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	sound := c.state()
	c.Run("sh", "-c", `nft delete table ip fairlead && nft -f - <<-"END"
		table ip fairlead {
			map services {
				type ipv4_addr . inet_proto . inet_service : verdict
				elements = { 10.96.0.1 . tcp . 80 : jump old }
			}
			chain old {
				dnat to 10.244.1.11
			}
			chain prerouting {
				type nat hook prerouting priority -100
				ip daddr . ip protocol . th dport vmap @services
			}
		}
		END`)
	c.Restart()
	before := c.generation()
	c.Apply(want)
	if got := c.state(); got != sound {
		t.Errorf("the state is\n%s\nwant\n%s", got, sound)
	}
	if n := c.generation() - before; n != 1 {
		t.Errorf("it was replaced in %d transactions, want 1", n)
	}
}

// TestRefusedPortStandsAlone has ports that no kernel could serve, and one that this
// kernel refuses, at first and as a change of one that works.
func TestRefusedPortStandsAlone(t *testing.T) {
	c := newCluster(t)
	c.poison()
	good := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(good)
	poisoned := func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster = blackbox.At(blackbox.ServePort, a.P1, a.P2, a.P3, a.Node, a.Client)
	}
	want := blackbox.Forwarding(append(blackbox.Services()[1:],
		blackbox.Service{Name: "cluster", N: 1, Fill: poisoned}, // was good
		blackbox.Service{Name: "more", N: 21, Fill: func(a blackbox.Addresses, p *desired.Port) { p.Cluster = blackbox.At(blackbox.ServePort, a.P2) }},
		blackbox.Service{Name: "poisoned", N: 22, Fill: poisoned},
		blackbox.Service{Name: "foreign", N: 23, Fill: func(_ blackbox.Addresses, p *desired.Port) {
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
		}})...)
	bad := map[desired.PortKey]bool{}
	for key := range want.Ports {
		if slices.Contains([]string{"cluster", "poisoned", "foreign"}, key.Service.Name) {
			bad[key] = true
		}
	}
	for range 3 { // the next Apply tries again, and loses nothing by it
		missing, err := c.Try(want)
		if got := outcome.Refused(err); !maps.Equal(got, bad) {
			t.Fatalf("refused: %v, want %v: %v", got, bad, err)
		}
		for key := range bad {
			if has, lacks := missing[key]; !lacks || !has.Equal(good.Ports[key]) {
				t.Errorf("%v: missing %t, has %v, want %v", key, lacks, has, good.Ports[key])
			}
		}
		if len(missing) != len(bad) {
			t.Errorf("%d ports are missing, want %d", len(missing), len(bad))
		}
		for n, server := range map[byte]string{1: "p1 p2 p3", 2: "p1", 21: "p2"} {
			got, err := c.Client.Ask("tcp", netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(addr.IPv4).VIPs, n), 80), blackbox.AnswerIn)
			if err != nil || !strings.Contains(server, got.Server) {
				t.Errorf("Service %d: %v, %v, want an answer of %s", n, got, err, server)
			}
		}
	}
	c.Restart()
	c.poison()
	if _, err := c.Try(want); !maps.Equal(outcome.Refused(err), bad) {
		t.Errorf("after a restart: %v", err)
	}
	c.Apply(good)
	left := c.state()
	c.Cleanup()
	c.poison()
	c.Apply(good)
	if got := c.state(); got != left {
		t.Errorf("the refused ports left traces:\n%s\nwant\n%s", left, got)
	}
}

// poison has the kernel refuse Services of five endpoints: their chain has a rule that
// it cannot take.
func (c *cluster) poison() {
	odd := []rule{{Says: "by magic", Exprs: []expr.Any{&expr.Numgen{Register: reg(0), Type: 1}}}} // modulo 0
	for _, f := range c.backend.families {
		for _, w := range []matchKind{byAddress, byNodePort} {
			for _, e := range []entry{internal, masked} {
				f.made[classKey{class{entry: e, main: group{size: 5}}, w}] = []chain{{Name: fmt.Sprint("odd-", w, e), Rules: odd}}
			}
		}
	}
}

// TestTheLowestKeyHasADestination lets two Services claim one address.
func TestTheLowestKeyHasADestination(t *testing.T) {
	c := newCluster(t)
	serve := func(name string, by func(a blackbox.Addresses) netip.Addr) blackbox.Service {
		return blackbox.Service{Name: name, N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) { p.Cluster = blackbox.At(blackbox.ServePort, by(a)) }}
	}
	a := serve("a", func(a blackbox.Addresses) netip.Addr { return a.P1 })
	b := serve("b", func(a blackbox.Addresses) netip.Addr { return a.P2 })
	for _, step := range []struct {
		services []blackbox.Service
		server   string
	}{
		{[]blackbox.Service{b}, "p2"},
		{[]blackbox.Service{b, a}, "p1"},
		{[]blackbox.Service{b}, "p2"},
		{[]blackbox.Service{a, b}, "p1"},
		{[]blackbox.Service{a}, "p1"},
	} {
		c.Apply(blackbox.Forwarding(step.services...))
		for _, f := range addr.Families() {
			for _, to := range []netip.AddrPort{
				netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, 1), 80), netip.AddrPortFrom(blackbox.Plan(f).Node, 30001),
			} {
				if got, err := c.Client.Ask("tcp", to, blackbox.AnswerIn); err != nil || got.Server != step.server {
					t.Errorf("%d Services: %s: %v, %v, want an answer of %s", len(step.services), to, got, err, step.server)
				}
			}
		}
	}
}

// TestErrorsAreTold holds that a kernel which takes nothing is no fault of any port.
func TestErrorsAreTold(t *testing.T) {
	c := newCluster(t)
	want := blackbox.Forwarding(blackbox.Services()...)
	for _, f := range c.backend.families {
		f.link = &link{Socket: f.link.Socket, owned: f.link.owned}
		f.NFT.Name = strings.Repeat("long", 100) // no table can be called so
	}
	missing, err := c.Try(want)
	if refused := outcome.Refused(err); err == nil || len(refused) > 0 || len(missing) != len(want.Ports) {
		t.Errorf("%d of %d ports are missing, %d refused, error %v", len(missing), len(want.Ports), len(refused), err)
	}
	for _, f := range c.backend.families {
		f.NFT.Name = tableName
	}
	c.Apply(want)
	if key := blackbox.Key("cluster", view.TCP, addr.IPv4); !want.Ports[key].Equal(c.backend.families[0].ports[key]) {
		t.Error("it does not recover")
	}
}
