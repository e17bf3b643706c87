package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// keep applies want whenever the backend says that it is time, and again where that fails, as
// the agent does, until the test ends.
func (c *cluster) keep(want desired.Forwarding) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	disturbed := make(chan struct{}, 1)
	again := func() {
		select {
		case disturbed <- struct{}{}:
		default:
		}
	}
	go func() {
		defer close(done)
		c.Node.Do(func() { c.backend.Watch(ctx, again) })
	}()
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		for {
			select {
			case <-ctx.Done():
				return
			case <-disturbed:
				// What it cannot do shows in the kernel.
				if missing, err := c.Try(want); err != nil || len(missing) > 0 {
					time.AfterFunc(250*time.Millisecond, again)
				}
			}
		}
	}()
	c.t.Cleanup(func() { cancel(); <-done; <-applied })
}

// state is a digest of our tables and sets that costs little.
func (c *cluster) state() string {
	var all []string
	note := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	c.Node.Do(func() {
		for _, f := range addr.Families() {
			for _, table := range []string{"nat", "filter"} {
				if c.variant == Legacy {
					counts, err := legacyInfo(f, table)
					note("%s %s %v %v", f, table, counts, err)
					continue
				}
				s, err := newTable(table, nil).fullCheck(new(nfnetlink.Conn), f)
				for i := range s.jumps {
					s.jumps[i].handle = 0
				}
				note("%s %s %v %v %v", f, table, s.chains, s.jumps, err)
			}
		}
		heads, err := ipset.All()
		for _, head := range heads { // those that were made anew are the last ones
			note("%v", head)
		}
		note("%v", err)
	})
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// within waits until the state is sound and returns how long that took.
func (c *cluster) within(limit time.Duration, sound string) time.Duration {
	c.t.Helper()
	return c.until(limit, c.state, sound)
}

// until waits until a state is sound and returns how long that took.
func (c *cluster) until(limit time.Duration, state func() string, sound string) time.Duration {
	c.t.Helper()
	began := time.Now()
	for got := state(); got != sound; got = state() {
		if time.Since(began) > limit {
			c.t.Fatalf("after %s the state has\n%s\nwant\n%s", limit, without(got, sound), without(sound, got))
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// without is those lines of a text that another one does not have.
func without(text, other string) string {
	not := strings.Split(other, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return slices.Contains(not, line) }), "\n")
}

// TestForeignChangesAreRepairedWithinASecond does what people and programs do and sees
// how long it lasts.
func TestForeignChangesAreRepairedWithinASecond(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.Apply(want) // the first write may have made the tables themselves
		sound, chain := c.state(), chainInto(c, addr.IPv4)
		c.keep(want)
		// They wait for the lock: the backend may be about to repair what came before.
		v4 := strings.TrimSuffix(commands{c.variant, addr.IPv4}.program(""), "-") + " -w"
		v6 := strings.TrimSuffix(commands{c.variant, addr.IPv6}.program(""), "-") + " -w"
		for _, damage := range []string{
			v4 + " -t nat -F",
			v6 + " -t filter -F",
			v6 + " -t nat -D PREROUTING -j " + chainDispatch,
			v4 + " -t filter -F " + chainNoEndpoints,
			v4 + " -t nat -F " + chain,
			v4 + " -t nat -F " + chainServices + " && " + v4 + " -t nat -F " + chain,
			v4 + " -t filter -I " + chainForward + " -j RETURN",
			v4 + " -t nat -I PREROUTING -p tcp --dport 7 -j " + chainDispatch, // of which a glance sees no more than a count
			// At once, lest the chain be gone before the rule comes.
			fmt.Sprintf("printf '*nat\\n:%[1]sSTRANGE -\\n-A %[1]sSTRANGE -j RETURN\\nCOMMIT\\n' | %[2]s --noflush -w",
				ours, commands{c.variant, addr.IPv4}.program("restore")),
			"ipset del FAIRLEAD-ENDPOINTS4 " + "10.244.1.11,tcp:8080,10.244.1.11",
			"ipset flush FAIRLEAD-PODS6",
			"ipset add FAIRLEAD-SERVICES6 2001:db8::1,udp:7",
			"ipset flush FAIRLEAD-NODEPORTS4",
			// What a script does that begins anew: sets whose rules the kernel has not destroyed yet stay.
			v6 + " -t nat -F; " + v6 + " -F; for set in $(ipset list -n | grep ^FAIRLEAD-.*6); do ipset destroy $set; done; true",
		} {
			least := time.Hour
			for range 10 { // the machine does other things too
				c.peace()
				c.Run("sh", "-c", damage)
				if least = min(least, c.within(patience, sound)); least < time.Second {
					break
				}
			}
			if least > time.Second {
				t.Errorf("%s is repaired after %s", damage, least)
			}
		}
	})
}

// peace gives the backend all the time for repairs that it has after a while in which
// nobody disturbed it.
func (c *cluster) peace() {
	c.backend.mu.Lock()
	defer c.backend.mu.Unlock()
	for _, f := range c.backend.families {
		f.reading.RateLimit = kernelwatch.NewRateLimit()
	}
}

// chainInto is a chain that holds the endpoints of a Service.
func chainInto(c *cluster, f addr.Family) string {
	for _, family := range c.backend.families {
		if family.family != f {
			continue
		}
		for name := range family.nat.table.want {
			if strings.HasPrefix(name, ours+kindInternal+"-") {
				return name
			}
		}
	}
	c.t.Fatal("no Service has endpoints")
	return ""
}

// TestFlushInALoopIsOutlived holds against somebody who flushes all the time: it works in
// between, and at the end all is there again.
func TestFlushInALoopIsOutlived(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.Apply(want)
		sound := c.state()
		c.keep(want)
		v4 := strings.TrimSuffix(commands{c.variant, addr.IPv4}.program(""), "-")
		c.Run("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do "+v4+" -w -t nat -F; "+v4+" -w -F; sleep 0.1; done")
		c.within(patience, sound)
		to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(addr.IPv4).VIPs, 2), 80)
		if got, err := c.Client.Ask("tcp", to, blackbox.AnswerIn); err != nil || got.Server != "p1" {
			t.Errorf("%v, %v, want an answer of p1", got, err)
		}
	})
}

// BenchmarkLook measures what it costs to see that nobody changed anything.
func BenchmarkLook(b *testing.B) {
	for _, variant := range variants {
		b.Run(string(variant), func(b *testing.B) {
			c := newCluster(b, variant)
			want := blackbox.Forwarding(blackbox.Services()...)
			if _, err := c.Try(want); err != nil {
				b.Fatal(err)
			}
			_, second := c.Try(want)
			var disturbed error
			c.Node.Do(func() {
				for b.Loop() {
					if c.backend.disturbed() {
						disturbed = errors.New("a change is seen that nobody made")
					}
				}
			})
			if err := errors.Join(second, disturbed); err != nil {
				b.Error(err)
			}
		})
	}
}
