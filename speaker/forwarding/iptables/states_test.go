package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestAnyStateToAnyState holds that the kernel's rules depend on the wanted state
// alone: not on what was there before, nor on how often it is applied.
func TestAnyStateToAnyState(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		deadline := time.Now().Add(8 * time.Second)
		rapid.Check(t, func(rt *rapid.T) {
			if time.Now().After(deadline) {
				return // enough of the generator's states were seen
			}
			first, second := blackbox.Draw(rt, "first"), blackbox.Draw(rt, "second")
			c.Cleanup()
			c.Apply(second)
			fresh := c.rules()

			c.Apply(first)
			c.Apply(second)
			if got := c.rules(); got != fresh {
				rt.Fatalf("rules depend on the path:\n%s\nwant\n%s", got, fresh)
			}
			c.Apply(second)
			if got := c.rules(); got != fresh {
				rt.Fatalf("applying twice changed the rules:\n%s\nwant\n%s", got, fresh)
			}
			c.Apply(first)
			c.Restart() // as after a restart
			c.Apply(second)
			if got := c.rules(); got != fresh {
				rt.Fatalf("rules after a restart:\n%s\nwant\n%s", got, fresh)
			}
		})
	})
}

// TestCleanupLeavesNothing holds that others' rules stay and ours go.
func TestCleanupLeavesNothing(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		for _, f := range addr.Families() {
			program := strings.TrimSuffix(commands{c.variant, f}.program(""), "-")
			c.Run(program, "-t", "nat", "-N", "KUBE-SERVICES")
			c.Run(program, "-t", "nat", "-A", "PREROUTING", "-j", "KUBE-SERVICES")
			c.Run(program, "-t", "filter", "-A", "FORWARD", "-p", "tcp", "-j", "ACCEPT")
		}
		c.Run("ipset", "create", "others", "hash:ip")
		before := c.rules()
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
		if c.rules() == before {
			t.Fatal("apply put nothing into the kernel")
		}
		c.Cleanup()
		if got := c.rules(); got != before {
			t.Errorf("after cleanup:\n%s\nwant\n%s", got, before)
		}
		c.Cleanup() // of nothing is fine
	})
}

// TestForeignFlushIsHealed removes rules in the ways that people and programs do.
func TestForeignFlushIsHealed(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		sound := c.rules()
		v4 := strings.TrimSuffix(commands{c.variant, addr.IPv4}.program(""), "-")
		v6 := strings.TrimSuffix(commands{c.variant, addr.IPv6}.program(""), "-")
		for _, damage := range [][]string{
			{v4, "-t", "nat", "-F"},
			{v6, "-t", "filter", "-F"},
			{v4, "-t", "nat", "-D", "PREROUTING", "-j", chainDispatch},
			{v4, "-t", "nat", "-F", chainServices},
			{v6, "-t", "nat", "-F", chainPostrouting},
			{v4, "-t", "filter", "-A", chainForward, "-j", "DROP"},
			{"sh", "-c", v4 + " -t nat -F && " + v4 + " -t nat -X && " + v4 + " -F && " + v4 + " -X"},
			{"ipset", "flush", "FAIRLEAD-PODS4"},
			{"ipset", "add", "FAIRLEAD-PODS6", "2001:db8::/32"},
			{"ipset", "flush", "FAIRLEAD-ENDPOINTS6"},
		} {
			c.Apply(want)
			before := c.repairs()
			c.Run(damage...)
			if c.rules() == sound {
				t.Fatalf("%s damaged nothing", damage)
			}
			c.Apply(want)
			if c.repairs() <= before {
				t.Errorf("the repair of what %s did is not counted", damage)
			}
			if got := c.rules(); got != sound {
				t.Errorf("after %s:\n%s\nwant\n%s", damage, got, sound)
			}
		}
	})
}

// repairs are those of both families together.
func (c *cluster) repairs() int {
	_, v4 := c.backend.Tally(addr.IPv4)
	_, v6 := c.backend.Tally(addr.IPv6)
	return v4 + v6
}

// TestWhatIsLeftOfAFlushIsFilled has many chains. A flush empties
// them, some programs remove them as well, and one chain gets a rule of somebody else:
// afterwards all is as it was.
func TestWhatIsLeftOfAFlushIsFilled(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
		var some string
		for i := range byte(200) {
			key := blackbox.Key(fmt.Sprint("s", i), view.TCP, addr.IPv4)
			a := blackbox.Plan(addr.IPv4)
			want.Ports[key] = desired.Port{
				ClusterIP: blackbox.Nth(a.ClusterIPs, i), VIPs: []netip.Addr{blackbox.Nth(a.VIPs, i)}, Port: 80,
				Cluster: blackbox.At(blackbox.ServePort, a.P1, a.P2), Anywhere: true,
			}
			some = (&portRenderer{id: digest(fmt.Sprintf("%v", key))}).chain(kindInternal)
		}
		c.Apply(want)
		sound := c.rules()
		if n := c.backend.families[0].nat.table.lines(); n < 800 {
			t.Fatalf("%d lines are too few", n)
		}
		program := "iptables-" + string(c.variant)
		for _, commands := range []string{"-F", "-F && @ -X", "-F && @ -A " + some + " -j RETURN"} {
			c.Run("sh", "-c", strings.ReplaceAll("@ "+commands, "@", program+" -t nat"))
			c.Apply(want)
			if got := c.rules(); got != sound {
				t.Fatalf("after %q:\n%s\nwant\n%s", commands, got, sound)
			}
		}
	})
}

// TestTallyCountsTheRulesInTheKernel holds the count against the kernel's own.
func TestTallyCountsTheRulesInTheKernel(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		for _, n := range []int{0, len(blackbox.Services()), 5, 0} {
			c.Apply(blackbox.Forwarding(blackbox.Services()[:n]...))
			for _, f := range addr.Families() {
				want := 0
				for _, table := range []string{"nat", "filter", "mangle", "raw"} {
					for line := range strings.Lines(c.Run((commands{c.variant, f}).program("save"), "-t", table)) {
						if strings.HasPrefix(line, "-A ") && strings.Contains(line, ours) {
							want++
						}
					}
				}
				if rules, _ := c.backend.Tally(f); rules != want {
					t.Errorf("%s, %d Services: %d rules are counted, the kernel has %d", f, n, rules, want)
				}
			}
		}
	})
}

// TestTablesAreReadOnlyIfOthersWrote holds that neither an idle Apply nor one
// that changes something reads the tables, and that a restart with unchanged
// Services writes nothing.
func TestTablesAreReadOnlyIfOthersWrote(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.Apply(want) // the first write may have made the tables themselves
		quietly := func(what string, want desired.Forwarding) {
			t.Helper()
			c.Apply(want)
			for _, f := range c.backend.families {
				var epoch int
				c.Node.Do(func() { epoch = f.watch.look() })
				if epoch != f.reading.epoch {
					t.Errorf("%s, %s: the next check would read the tables", what, f.family)
				}
			}
		}
		generation := blackbox.Generation(c.t, c.Node)
		quietly("idle", want)
		if after := blackbox.Generation(c.t, c.Node); after != generation {
			t.Errorf("an idle Apply wrote rules: generation %d, was %d", after, generation)
		}
		quietly("Services go", blackbox.Forwarding(blackbox.Services()[:5]...))
		quietly("Services come", want)
		v4 := strings.TrimSuffix(commands{c.variant, addr.IPv4}.program(""), "-")
		c.Run(v4, "-A", "INPUT", "-p", "tcp", "-j", "ACCEPT")
		var epoch int
		c.Node.Do(func() { epoch = c.backend.families[0].watch.look() })
		if epoch == c.backend.families[0].reading.epoch {
			t.Error("a foreign rule was not noticed")
		}
		c.Apply(want)

		c.Node.Do(func() { c.backend.families[0].watch.look() })
		generation = blackbox.Generation(c.t, c.Node)
		seen := c.backend.families[0].watch.seen
		c.Restart()
		quietly("restart", want)
		c.Node.Do(func() { c.backend.families[0].watch.look() })
		if after := c.backend.families[0].watch.seen; after != seen || blackbox.Generation(c.t, c.Node) != generation {
			t.Errorf("the restart wrote rules: fingerprint %v, was %v", after, seen)
		}
	})
}

// TestServingIsNotRendered holds that a port of which nothing changed but which
// endpoints still serve is in place without a program being run.
func TestServingIsNotRendered(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
		c.Apply(blackbox.Forwarding(blackbox.Services()...)) // the first write may have made the tables themselves
		rules := c.rules()
		for _, f := range c.backend.families {
			f.commands.variant = "none" // there is no iptables-none-restore
		}
		want := blackbox.Forwarding(blackbox.Services()...)
		for key, p := range want.Ports {
			p.Serving = blackbox.At(blackbox.ServePort, blackbox.Plan(key.Family).P1)
			want.Ports[key] = p
		}
		c.Apply(want)
		if got := c.rules(); got != rules {
			t.Errorf("the rules changed to\n%s\nfrom\n%s", got, rules)
		}
	})
}

// TestRefusedPortStandsAlone has one Service whose rules the kernel cannot take
// among many, at first and as a change.
func TestRefusedPortStandsAlone(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		good := blackbox.Forwarding(blackbox.Services()...)
		want := blackbox.Forwarding(append(blackbox.Services(), blackbox.Service{Name: "bad", N: 20, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Restricted = blackbox.At(blackbox.ServePort, a.P1), true
			if a.Family == addr.IPv4 {
				p.SourceRanges = []netip.Prefix{blackbox.Plan(addr.IPv6).Nobody} // iptables takes IPv4 alone
			}
		}}, blackbox.Service{Name: "worse", N: 21, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster = blackbox.At(blackbox.ServePort, a.P1)
			if a.Family == addr.IPv6 {
				p.Cluster = blackbox.At(blackbox.ServePort, blackbox.Plan(addr.IPv4).P1)
			}
		}})...)
		bad := blackbox.Key("bad", view.TCP, addr.IPv4)
		for range 3 { // the next Apply tries again, and loses nothing by it
			missing, err := c.Try(want)
			var refused *outcome.RefusedError
			if !errors.As(err, &refused) || refused.Key.Service != bad.Service || !strings.Contains(err.Error(), "shop/worse") {
				t.Fatalf("error %v, want a RefusedError about %s", err, bad.Service)
			}
			if _, ok := missing[bad]; !ok || len(missing) != 4 {
				t.Fatalf("%d of %d ports are missing, want the bad four", len(missing), len(want.Ports))
			}
		}
		got, err := c.Client.Ask("tcp", netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(addr.IPv4).VIPs, 2), 80), blackbox.AnswerIn)
		if err != nil || got.Server != "p1" {
			t.Errorf("a good Service: %v, %v, want an answer of p1", got, err)
		}
		c.Apply(good) // the refused port went away
		fresh := c.rules()
		c.Cleanup()
		c.Apply(good)
		if got := c.rules(); got != fresh {
			t.Errorf("the refused port left traces:\n%s\nwant\n%s", fresh, got)
		}
		c.changeToRefused(good)
	})
}

// changeToRefused changes a Service that works to one that the kernel refuses:
// what was in place must go on working.
func (c *cluster) changeToRefused(good desired.Forwarding) {
	t := c.t
	want := blackbox.Forwarding(blackbox.Services()...)
	key := blackbox.Key("local", view.TCP, addr.IPv4)
	port := want.Ports[key]
	port.Restricted, port.SourceRanges = true, []netip.Prefix{blackbox.Plan(addr.IPv6).Nobody}
	want.Ports[key] = port
	missing, err := c.Try(want)
	if _, ok := missing[key]; !ok || err == nil || len(missing) != 1 {
		t.Errorf("%d of %d ports are missing, error %v", len(missing), len(good.Ports), err)
	}
	got, err := c.Client.Ask("tcp", netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(addr.IPv4).VIPs, 2), 80), blackbox.AnswerIn)
	if err != nil || got.Server != "p1" {
		t.Errorf("the Service with a bad change: %v, %v, want an answer of p1", got, err)
	}
	c.Apply(good)
}
