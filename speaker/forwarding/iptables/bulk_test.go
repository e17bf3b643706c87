package iptables

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// writing is a cluster whose backends write more than so many chains without iptables.
func writing(t testing.TB, many int) *cluster {
	c := &cluster{t: t, variant: NFT}
	c.Cluster = blackbox.NewCluster(t, func() (blackbox.Backend, error) { return c.create(many) })
	return c
}

func (c *cluster) create(many int) (blackbox.Backend, error) {
	c.backend = New(Config{Log: blackbox.Quiet(), Variant: NFT})
	if err := c.backend.prepare(context.Background()); err != nil {
		return nil, err
	}
	for _, f := range c.backend.families {
		f.many = many
	}
	return c.backend, nil
}

// TestBulkIsAsByIPTables holds that it makes no difference to the kernel's rules, as
// iptables shows them, whether much is written without it, from whatever state to another.
func TestBulkIsAsByIPTables(t *testing.T) {
	t.Parallel()
	c := writing(t, 0)
	deadline := time.Now().Add(8 * time.Second)
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(deadline) {
			return // enough of the generator's states were seen
		}
		first, second := blackbox.Draw(rt, "first"), blackbox.Draw(rt, "second")
		write := func(many int) {
			for _, f := range c.backend.families {
				f.many = many
			}
		}
		write(math.MaxInt)
		// One transaction for all, or one for every few chains.
		size := rapid.SampledFrom([]int{1, 2000, bulkSize}).Draw(rt, "size")
		for _, f := range c.backend.families {
			f.bulk = size
		}
		c.Apply(second)
		want := c.rules()
		c.Cleanup()
		c.Restart()
		write(0)
		for _, state := range []desired.Forwarding{second, first, second} {
			c.Apply(state)
		}
		if got := c.rules(); got != want {
			rt.Fatalf("in bulk:\n%s\nby iptables:\n%s", got, want)
		}
		c.Run("sh", "-c", "iptables-nft -t nat -F; ip6tables-nft -F")
		c.Apply(second)
		if got := c.rules(); got != want {
			rt.Fatalf("after a flush:\n%s\nwant\n%s", got, want)
		}
		c.Apply(second) // looks once more after the repair
		if epoch := c.backend.families[0].watch.look(); epoch != c.backend.families[0].reading.epoch && want != "" {
			rt.Fatalf("what it wrote it takes for others' writing")
		}
	})
}

// withoutIPTables are Services all of whose own chains are written without iptables.
func withoutIPTables() []blackbox.Service {
	lasting := blackbox.Service{Name: "lasting", N: 20, Fill: func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Affinity = blackbox.At(blackbox.ServePort, a.P1, a.P2), time.Hour
	}}
	return append(blackbox.Services(), lasting)
}

// TestBulkNeedsNoProgram has iptables refuse all that is about a Service that is served, and
// then everything: who was served stays so.
func TestBulkNeedsNoProgram(t *testing.T) {
	refuse := `[ -e $bin/broken ] && exit 1; grep -E -q -e '^-A FAIRLEAD-([IXCVESN]-|UNSERVED|SERVICES|NODEPORTS)' $in && exit 1`
	withFault(t, NFT, refuse, func(t *testing.T, c *faulty) {
		c.Cluster = blackbox.NewCluster(t, func() (blackbox.Backend, error) { return c.create(0) })
		want := blackbox.Forwarding(withoutIPTables()...)
		served := func(when string) {
			t.Helper()
			for _, f := range addr.Families() {
				if !c.serves(f) {
					t.Errorf("%s is not served %s", f, when)
				}
			}
		}
		c.Apply(want)
		served("at first")
		c.Run("sh", "-c", "iptables-nft -t nat -F; ip6tables-nft -t nat -F; iptables-nft -F; ip6tables-nft -F")
		c.Apply(want)
		served("after a flush")
		c.Run("touch", c.bin+"/broken")
		more := blackbox.Forwarding(append(withoutIPTables(), blackbox.Service{Name: "more", N: 30, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Affinity = blackbox.At(blackbox.ServePort, a.P1), time.Minute
		}})...)
		more.NodePorts = nil // so that there is something of other kinds
		if missing, err := c.Try(more); err == nil {
			t.Errorf("all was written without a program, %d ports are missing", len(missing))
		}
		served("while the program is broken")
		c.Run("rm", c.bin+"/broken")
		c.Apply(more)
		served("after that")
	})
}

// TestBulkThatIsRefused has the kernel not take what is written without iptables, since others
// removed chains just now: iptables writes it.
func TestBulkThatIsRefused(t *testing.T) {
	t.Parallel()
	c := writing(t, 0)
	c.Apply(blackbox.Forwarding(blackbox.Services()...))
	want := c.rules()
	c.Apply(blackbox.Forwarding())
	for _, f := range c.backend.families {
		for name := range f.chainsOf(blackbox.Forwarding(blackbox.Services()...)) {
			f.nat.table.empty[name] = struct{}{} // and so is not to be made
		}
	}
	c.Apply(blackbox.Forwarding(blackbox.Services()...))
	if got := c.rules(); got != want {
		t.Errorf("rules are\n%s\nwant\n%s", got, want)
	}
}

// chainsOf are the chains of the ports themselves in nat.
func (f *family) chainsOf(want desired.Forwarding) map[string][]string {
	all := map[string][]string{}
	for key, port := range want.Ports {
		if key.Family == f.family {
			maps.Copy(all, f.render(key, port).nat.chains)
		}
	}
	return all
}

// TestBulkWaitsForWhatHangs has a program hang at the rules that are left to it: nothing is
// written beside it until it has ended.
func TestBulkWaitsForWhatHangs(t *testing.T) {
	hang := `case $name in iptables-*-restore) while [ -e $bin/fault ]; do sleep 0.1; done;; esac`
	withFault(t, NFT, hang, func(t *testing.T, c *faulty) {
		c.Cluster = blackbox.NewCluster(t, func() (blackbox.Backend, error) { return c.create(0) })
		c.Apply(blackbox.Forwarding(blackbox.Services()[:2]...))
		v4 := func() string {
			rules, _, _ := strings.Cut(c.rules(), addr.IPv6.String()+" nat")
			return rules
		}
		c.on()
		first, second := blackbox.Forwarding(blackbox.Services()[:4]...), blackbox.Forwarding(blackbox.Services()...)
		var late *LateError
		if _, err := c.Try(first); !errors.As(err, &late) {
			t.Errorf("error %v, want one about a program that hangs", err)
		}
		before := v4()
		if _, err := c.Try(second); !errors.As(err, &late) {
			t.Errorf("error %v, want one about a program that hangs", err)
		}
		if now := v4(); now != before {
			t.Errorf("IPv4 was written beside the program that hangs:\n%s\nbefore:\n%s", now, before)
		}
		c.heals(second, c.off)
	})
}
