package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/outcome"
)

// faulty is a cluster on whose node each program of iptables can be made to fail.
type faulty struct {
	*cluster
	bin string // where the programs are
}

// eachFaulty runs a test for each variant, with programs in PATH that do what the real
// ones do, until something is written into the file beside them that is named for the
// fault. The script has $in, a copy of what the program reads. Not in parallel, as PATH
// belongs to the process.
func eachFaulty(t *testing.T, fault string, test func(t *testing.T, c *faulty)) {
	for _, variant := range variants {
		withFault(t, variant, fault, test)
	}
}

// withFault is eachFaulty for one variant.
func withFault(t *testing.T, variant Variant, fault string, test func(t *testing.T, c *faulty)) {
	t.Run(string(variant), func(t *testing.T) {
		c := &faulty{bin: t.TempDir()}
		for _, f := range addr.Families() {
			for _, action := range []string{"restore", "save"} {
				name := commands{variant, f}.program(action)
				program, err := exec.LookPath(name)
				if err != nil {
					t.Skip(err)
				}
				script := fmt.Sprintf("#!/bin/sh\nbin=%s name=%s in=$bin/in.$$\ncat >$in\necho $name >>$bin/runs\n%s\nexec %s \"$@\" <$in\n",
					c.bin, name, fault, program)
				if action == "save" {
					script = strings.Replace(script, "cat >$in", ": >$in", 1)
				}
				if err := os.WriteFile(filepath.Join(c.bin, name), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Setenv("PATH", c.bin+":"+os.Getenv("PATH"))
		t.Setenv("XTABLES_LOCKFILE", filepath.Join(c.bin, "lock"))
		c.cluster = newCluster(t, variant)
		test(t, c)
	})
}

// patience is more than what does happen takes on a busy machine.
const patience = 3 * time.Minute

// on begins a fault and off ends it.
func (c *faulty) on() {
	if err := os.WriteFile(filepath.Join(c.bin, "fault"), nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *faulty) off() { _ = os.Remove(filepath.Join(c.bin, "fault")) }

// serves tells whether a Service of a family is reached.
func (c *faulty) serves(f addr.Family) bool {
	to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, 2), 80)
	got, err := c.Client.Ask("tcp", to, blackbox.AnswerIn)
	return err == nil && got.Server == "p1"
}

// heals holds that the backend says when it is time to try again, and that it works then.
func (c *faulty) heals(want desired.Forwarding, end func()) {
	c.t.Helper()
	ctx, said := c.calm(want)
	end()
	<-said
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.t.Errorf("the end of the fault was not noticed")
	}
	// What a program that was late writes may be noticed before it has ended.
	var late *LateError
	missing, err := c.Try(want)
	for until := time.Now().Add(patience); errors.As(err, &late) && time.Now().Before(until); missing, err = c.Try(want) {
		time.Sleep(kernelwatch.Interval)
	}
	if err != nil || len(missing) > 0 {
		c.t.Errorf("after the fault %d ports are missing: %v", len(missing), err)
	}
	for _, f := range addr.Families() {
		if !c.serves(f) {
			c.t.Errorf("%s is not served after the fault", f)
		}
	}
}

// calm returns what watch does, once there is nothing to do. What was written last is compared first, of each family in
// part and then whole: with legacy iptables after a while.
func (c *faulty) calm(want desired.Forwarding) (context.Context, chan struct{}) {
	c.t.Helper()
	for range 2*len(addr.Families()) + 1 {
		ctx, said := c.watch()
		select {
		case <-said:
			_, _ = c.Try(want)
		case <-time.After(3 * kernelwatch.Interval):
			return ctx, said
		}
	}
	c.t.Fatal("it is to be tried again and again though nothing has become better")
	return nil, nil
}

// watch has the backend say, by the end of the channel, that there is something to do.
func (c *faulty) watch() (ctx context.Context, said chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	said = make(chan struct{})
	go func() {
		defer close(said)
		c.Node.Do(func() { c.backend.Watch(ctx, cancel) })
	}()
	return ctx, said
}

// blames holds that an error tells the cause.
func blames(t *testing.T, err error, reason string) {
	t.Helper()
	if got := outcome.ReasonOf(err); got != reason {
		t.Errorf("the cause %q is told of %v, want %q", got, err, reason)
	}
}

// missingOf counts the missing ports of a family.
func missingOf(missing outcome.Missing, f addr.Family) int {
	n := 0
	for key := range missing {
		if key.Family == f {
			n++
		}
	}
	return n
}

// TestMissingProgram begins without any iptables, and loses it later.
func TestMissingProgram(t *testing.T) {
	eachFaulty(t, "", func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Services()...)
		path := os.Getenv("PATH")
		t.Setenv("PATH", t.TempDir())
		c.Node.Do(func() {
			c.backend = New(Config{Log: blackbox.Quiet()})
		})
		apply := func() (missing outcome.Missing, err error) {
			c.Node.Do(func() { missing, err = c.backend.Apply(t.Context(), want) })
			return missing, err
		}
		missing, err := apply()
		if err == nil || !strings.Contains(err.Error(), "install iptables") || len(missing) != len(want.Ports) {
			t.Fatalf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
		}
		blames(t, err, outcome.ReasonProgramMissing)
		t.Setenv("PATH", path)
		c.backend = nil
		c.Restart()
		c.Apply(want)
		t.Setenv("PATH", t.TempDir())
		more := blackbox.Forwarding(append(blackbox.Services(), blackbox.Service{Name: "more", N: 30, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster = blackbox.At(blackbox.ServePort, a.P1)
		}})...)
		missing, err = c.Try(more)
		if c.variant == NFT { // it takes none
			if err != nil || len(missing) > 0 {
				t.Errorf("%d ports are missing, error %v", len(missing), err)
			}
			return
		}
		if !errors.Is(err, exec.ErrNotFound) || len(missing) != 4 {
			t.Fatalf("%d ports are missing, error %v: want the four new ones and a program", len(missing), err)
		}
		blames(t, err, outcome.ReasonProgramMissing)
		c.heals(more, func() { t.Setenv("PATH", path) })
	})
}

// TestFailingProgram has the program fail whatever it is given: no Service is to blame,
// and what is in the kernel stays.
func TestFailingProgram(t *testing.T) {
	withFault(t, Legacy, `[ -e $bin/fault ] && { echo "$name: it is broken" >&2; exit 1; }`, func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.on()
		missing, err := c.Try(want)
		if err == nil || !strings.Contains(err.Error(), "it is broken") || len(missing) != len(want.Ports) {
			t.Errorf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
		}
		c.off()
		c.Apply(want)
		rules := c.rules()
		c.on()
		fewer := blackbox.Forwarding(blackbox.Services()[:5]...)
		for range 2 {
			missing, err = c.Try(fewer)
			var refused *outcome.RefusedError
			if err == nil || errors.As(err, &refused) || len(missing) != len(want.Ports)-len(fewer.Ports) {
				t.Errorf("%d ports are missing, error %v: want an error and the %d that are still there", len(missing), err, len(want.Ports)-len(fewer.Ports))
			}
			for key, in := range missing {
				if _, wanted := fewer.Ports[key]; wanted || !in.Equal(want.Ports[key]) {
					t.Errorf("%v is missing, with %+v in the kernel", key, in)
				}
			}
		}
		blames(t, err, "")
		c.off()
		if got := c.rules(); got != rules {
			t.Errorf("a program that failed changed the rules to\n%s\nfrom\n%s", got, rules)
		}
		c.Apply(fewer)
		if c.rules() == rules {
			t.Error("what is to go is still there")
		}
		c.on()
		fewer.NodePorts = nil // of which chains tell that no Service has
		for range 2 {
			missing, err = c.Try(fewer)
			if len(missing) != 0 || len(outcome.Behind(missing, err)) != 2 {
				t.Errorf("%d ports are missing, error %v: want that both families are behind", len(missing), err)
			}
		}
		c.off()
		c.Apply(want)
	})
}

// TestSetOfNoPortThatFails has no room for where pods send from: the family is unsettled,
// though all ports are in place.
func TestSetOfNoPortThatFails(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.backend.families[0].sets.fixed[ofPods].MaxElements = 1
		few := want
		few.Pods = nil
		for i := range byte(20) {
			few.Pods = append(few.Pods, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2 * i, 0, 0}), 16))
		}
		for range 2 {
			missing, err := c.Try(few)
			if len(missing) != 0 || !outcome.Behind(missing, err)[addr.IPv4] || outcome.Behind(missing, err)[addr.IPv6] {
				t.Errorf("%d ports are missing, error %v: want that IPv4 is behind", len(missing), err)
			}
		}
		c.Apply(blackbox.Forwarding())
	})
}

// TestHangingProgram has one program hang on one table of one family: all else is
// written, nobody waits for it a second time, and it is picked up when it ends.
func TestHangingProgram(t *testing.T) {
	hang := `case $name in iptables-*-restore) while [ -e $bin/fault ] && grep -q '^\*nat' $in; do sleep 0.1; done;; esac`
	withFault(t, Legacy, hang, func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.on()
		began := time.Now()
		missing, err := c.Try(want)
		if took := time.Since(began); took > 4*defaultPatience {
			t.Errorf("a program that hangs held everything up for %s", took)
		}
		var late *LateError
		if !errors.As(err, &late) || !strings.Contains(late.Command, "restore") {
			t.Errorf("error %v, want one about a program that hangs", err)
		}
		blames(t, err, outcome.ReasonProgramHangs)
		if missingOf(missing, addr.IPv4) == 0 || missingOf(missing, addr.IPv6) != 0 {
			t.Errorf("%d ports of IPv4 and %d of IPv6 are missing", missingOf(missing, addr.IPv4), missingOf(missing, addr.IPv6))
		}
		if !c.serves(addr.IPv6) {
			t.Error("IPv6 is not served because IPv4 hangs")
		}
		filter := c.Run((commands{c.variant, addr.IPv4}).program("save"), "-t", "filter")
		if !strings.Contains(filter, chainNoEndpoints) {
			t.Error("the filter table is not written because nat hangs")
		}
		began = time.Now()
		if _, err := c.Try(want); err == nil || time.Since(began) >= defaultPatience {
			t.Errorf("the second time took %s, error %v", time.Since(began), err)
		}
		c.heals(want, c.off)
	})
}

// TestProgramThatHangsForGoodIsKilled has a program never end by itself.
func TestProgramThatHangsForGoodIsKilled(t *testing.T) {
	withFault(t, Legacy, `case $name in iptables-*-restore) [ -e $bin/fault ] && sleep 1000;; esac`, func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Node.Do(func() {
			c.backend = New(Config{Log: blackbox.Quiet(), Variant: c.variant, Patience: time.Second})
		})
		apply := func() (missing outcome.Missing, err error) {
			c.Node.Do(func() { missing, err = c.backend.Apply(t.Context(), want) })
			return missing, err
		}
		c.on()
		if _, err := apply(); err == nil {
			t.Error("no error though a program hangs")
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c.off() // which does not wake the one that sleeps
		c.Node.Do(func() { c.backend.Watch(ctx, cancel) })
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Error("the program still runs")
		}
		deadline := time.Now().Add(patience)
		for {
			missing, err := apply()
			if err == nil && len(missing) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d ports are missing, error %v", len(missing), err)
			}
			time.Sleep(kernelwatch.Interval)
		}
	})
}

// TestLockHeldByOthers has somebody hold the lock of legacy iptables: it is waited for
// shortly, and tried again when it is free.
func TestLockHeldByOthers(t *testing.T) {
	withFault(t, Legacy, "", func(t *testing.T, c *faulty) { // nf_tables has no lock
		want := blackbox.Forwarding(blackbox.Services()...)
		lock, err := os.OpenFile(lockFile(), os.O_CREATE|os.O_RDONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Close() }()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		missing, err := c.Try(want) // a program that waits for it longer than a second is late
		if !errors.Is(err, errLocked) || len(missing) != len(want.Ports) {
			t.Errorf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
		}
		blames(t, err, outcome.ReasonTablesLocked)
		if late, ok := errors.AsType[*LateError](err); ok {
			t.Errorf("the lock was waited for %s", late.Since)
		}
		c.heals(want, func() { _ = unix.Flock(int(lock.Fd()), unix.LOCK_UN) })
	})
}

// TestKernelWithoutAFeature has iptables say what it says where a module is missing: the
// error names what is lacking, and all is well once it is there.
func TestKernelWithoutAFeature(t *testing.T) {
	lacks := `[ -e $bin/fault ] && grep -q -- '-m statistic' $in && { echo "$name v1.8.9: Couldn't load match 'statistic'" >&2; exit 2; }`
	withFault(t, Legacy, lacks, func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Service{Name: "shares", N: 2, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local, p.ExternalLocal = blackbox.At(blackbox.ServePort, a.P1, a.P3), blackbox.At(blackbox.ServePort, a.P1), true
		}}, blackbox.Service{Name: "single", N: 3, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster = blackbox.At(blackbox.ServePort, a.P2)
		}})
		c.on()
		missing, err := c.Try(want)
		if err == nil || !strings.Contains(err.Error(), "statistic") || len(missing) != 4 {
			t.Errorf("%d of %d ports are missing, error %v: want those with two endpoints", len(missing), len(want.Ports), err)
		}
		c.off()
		c.Apply(want)
	})
}

// TestNFTNeedsNoProgram has all programs fail: what is wanted is written, and repaired, without them.
func TestNFTNeedsNoProgram(t *testing.T) {
	withFault(t, NFT, `[ -e $bin/fault ] && { echo "$name: it is broken" >&2; exit 1; }`, func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Services()...)
		sound := func() string { c.off(); defer c.on(); return c.rules() } // which runs iptables-nft-save
		c.on()
		c.Apply(blackbox.Forwarding(blackbox.Services()[:2]...))
		c.Apply(want)
		before := sound()
		for _, damage := range []string{"flush table ip nat; flush table ip6 filter", "delete table ip filter; delete table ip6 nat", "flush ruleset"} {
			c.Run("nft", damage)
			c.Apply(want)
			if got := sound(); got != before {
				t.Errorf("after %s:\n%s\nwant\n%s", damage, got, before)
			}
			for _, f := range addr.Families() {
				if !c.serves(f) {
					t.Errorf("%s is not served after %s", f, damage)
				}
			}
		}
	})
}

// TestFeaturesAreAskedFor holds that this kernel has all that is asked for, that it can be told that one
// is missing, and that asking leaves no traces.
func TestFeaturesAreAskedFor(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
		before := c.rules()
		for _, f := range c.backend.families {
			c.Node.Do(func() {
				for _, has := range f.features() {
					i := map[string]int{"nat": 0, "filter": 1}[has.table]
					if err := f.try(t.Context(), i, has.rule); err != nil {
						t.Errorf("%s: %v", has.name, err)
					}
				}
				if err := f.try(t.Context(), 0, "-m nonsense -j RETURN"); !refused(err) {
					t.Errorf("a match that nobody has: error %v", err)
				}
			})
		}
		if got := c.rules(); got != before {
			t.Errorf("the rules are\n%s\nwant\n%s", got, before)
		}
	})
}

// TestKernelWithoutWhatAllNeed lacks what every Service needs.
func TestKernelWithoutWhatAllNeed(t *testing.T) {
	lacks := `[ -e $bin/fault ] && grep -q -- '-m addrtype' $in && { echo "$name: line 7 failed" >&2; exit 1; }`
	withFault(t, Legacy, lacks, func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.on()
		for range 2 {
			missing, err := c.Try(want)
			if err == nil || !strings.Contains(err.Error(), "the match addrtype (module xt_addrtype)") || len(missing) != len(want.Ports) {
				t.Errorf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
			}
			blames(t, err, outcome.ReasonFeatureMissing)
			if err != nil && strings.Contains(err.Error(), "xt_mark") {
				t.Errorf("the error names what is there: %v", err)
			}
		}
		c.off()
		c.Apply(want)
		fresh := c.rules()
		c.Cleanup()
		c.Apply(want)
		if got := c.rules(); got != fresh {
			t.Errorf("asking for features left traces:\n%s\nwant\n%s", fresh, got)
		}
	})
}

// TestHostWithoutIPv6 tells of a family that does not work only if a Service wants it,
// and does not try all the time.
func TestHostWithoutIPv6(t *testing.T) {
	broken := `case $name in ip6tables-*) [ -e $bin/fault ] && { echo "$name: Address family not supported by protocol" >&2; exit 3; };; esac`
	withFault(t, Legacy, broken, func(t *testing.T, c *faulty) {
		both := blackbox.Forwarding(blackbox.Services()...)
		single := both
		single.Ports = map[desired.PortKey]desired.Port{}
		for key, port := range both.Ports {
			if key.Family == addr.IPv4 {
				single.Ports[key] = port
			}
		}
		c.on()
		c.Apply(single)
		if !c.serves(addr.IPv4) {
			t.Error("IPv4 is not served")
		}
		before := c.runs("ip6tables")
		c.Apply(single)
		c.Apply(single)
		if after := c.runs("ip6tables"); after != before {
			t.Errorf("%d programs were run for a family that nobody wants", after-before)
		}
		missing, err := c.Try(both)
		if err == nil || !strings.Contains(err.Error(), "IPv6: ") || missingOf(missing, addr.IPv6) == 0 || missingOf(missing, addr.IPv4) != 0 {
			t.Errorf("%d ports of IPv4 and %d of IPv6 are missing, error %v", missingOf(missing, addr.IPv4), missingOf(missing, addr.IPv6), err)
		}
		blames(t, err, outcome.ReasonFeatureMissing)
		c.off()
		c.Apply(both)
		if !c.serves(addr.IPv6) {
			t.Error("IPv6 is not served though it works now")
		}
	})
}

// runs counts how often programs of a name were run.
func (c *faulty) runs(name string) int {
	all, err := os.ReadFile(filepath.Join(c.bin, "runs"))
	if err != nil {
		return 0
	}
	return strings.Count("\n"+string(all), "\n"+name)
}

// TestFullSet has room for a few endpoints only: the error names the set, and the rules
// of all Services are in place.
func TestFullSet(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		many := blackbox.Services()
		for i := range byte(200) {
			many = append(many, blackbox.Service{Name: fmt.Sprint("s", i), N: 30 + i, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster = blackbox.At(8000+uint16(i), a.P1)
			}})
		}
		want := blackbox.Forwarding(many...)
		for _, f := range c.backend.families {
			f.sets.fixed[ofEndpoints].MaxElements = 100
		}
		for range 2 {
			missing, err := c.Try(want)
			if !errors.Is(err, ipset.ErrFull) || !strings.Contains(err.Error(), "FAIRLEAD-ENDPOINTS") || len(missing) > 0 {
				t.Fatalf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
			}
			blames(t, err, outcome.ReasonSetFull)
		}
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
	})
}
