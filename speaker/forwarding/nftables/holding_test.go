package nftables

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// watch has the backend keep what is ours, as a process does, until the returned function
// is called. What it tells is applied.
func (c *cluster) watch() (end func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	done, told := make(chan struct{}), make(chan struct{}, 1)
	go c.Node.Do(func() {
		defer close(done)
		c.backend.Watch(ctx, func() {
			select {
			case told <- struct{}{}:
			default:
			}
		})
	})
	select {
	case <-told: // the tables are not this process's own yet
	case <-time.After(blackbox.AnswerIn):
		c.t.Fatal("nothing is told, though others can write")
	}
	return func() { cancel(); <-done }
}

// owners is how many tables of ours have one.
func (c *cluster) owners() int { return strings.Count(c.Run("nft", "list", "ruleset"), "flags owner") }

// TestOthersAreKeptFromOurTables does to tables that the process owns what people and
// programs do. It is refused or passes them by: no packet notices, and nothing is read or
// written for it.
func TestOthersAreKeptFromOurTables(t *testing.T) {
	c := newCluster(t)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	if !c.backend.link.persists {
		t.Fatal("this kernel, older than Linux 6.9, knows no tables that persist")
	}
	defer c.watch()()
	c.Apply(want)
	if got := c.owners(); got != 2 {
		t.Fatalf("%d tables have an owner, want both", got)
	}
	sound := c.state()
	for _, damage := range damages() {
		c.Run("nft", "add", "table", "ip", "others")                                                 // a flush takes it away
		c.Node.Do(func() { _ = exec.CommandContext(t.Context(), "sh", "-c", quoted(damage)).Run() }) // most are refused
		if others := c.Run("nft", "list", "tables"); damage == "nft flush ruleset" && strings.Contains(others, "others") {
			t.Errorf("%q does nothing at all: %s", damage, others)
		}
		if got := c.state(); got != sound {
			t.Fatalf("%q changes what is ours:\n%s\nwant\n%s", damage, got, sound)
		}
		var disturbed bool
		c.Node.Do(func() { disturbed = c.backend.disturbed() })
		before := c.generation()
		c.Apply(want)
		if n := c.generation() - before; disturbed || n > 0 {
			t.Errorf("after %q somebody is told: %t, and %d transactions follow", damage, disturbed, n)
		}
	}
	less := blackbox.Forwarding(blackbox.Services()[1:]...)
	c.Apply(less) // we ourselves can write
	if got := c.state(); got == sound {
		t.Error("a change changes nothing")
	}
}

// TestAnOwnerThatEndsIsSucceeded has a second process while the first one still owns the
// tables. It is told why it cannot write, and can as soon as the first one has ended,
// without any change in between; so can "speaker cleanup".
func TestAnOwnerThatEndsIsSucceeded(t *testing.T) {
	c := newCluster(t)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	end := c.watch()
	c.Apply(want)
	first := c.backend
	c.Restart()
	less := blackbox.Forwarding(blackbox.Services()[1:]...)
	missing, err := c.Try(less)
	if err == nil || !strings.Contains(err.Error(), "another process on this node owns the table") {
		t.Errorf("with another owner %d ports are missing, and the error is %v", len(missing), err)
	}
	c.Node.Do(func() { err = Remove(t.Context()) })
	if err == nil || !strings.Contains(err.Error(), "it must end first") {
		t.Errorf("a clean-up beside the owner: %v", err)
	}
	end()
	if got := c.owners(); got != 0 || first.link.Conn() != nil {
		t.Errorf("%d tables have an owner after its end", got)
	}
	c.Apply(less)
	defer c.watch()()
	c.Apply(less)
	if got := c.owners(); got != 2 {
		t.Errorf("%d tables have an owner again, want both", got)
	}
	c.Cleanup() // of our own
	if out := c.Run("nft", "list", "tables"); strings.Contains(out, tableName) {
		t.Errorf("the clean-up left %s", out)
	}
	c.Apply(want)
	if got := c.owners(); got != 2 {
		t.Errorf("after a clean-up %d tables have an owner, want both", got)
	}
}

// TestAnEarlierLayoutThatPersistsIsReplaced has a table of an earlier version, whose rules
// have other stamps, in place: all of it is exchanged in one transaction.
func TestAnEarlierLayoutThatPersistsIsReplaced(t *testing.T) {
	c := newCluster(t)
	want := blackbox.Forwarding(blackbox.Services()...)
	for _, f := range c.backend.families {
		f.Salt = []byte("another version")
	}
	c.Apply(want)
	end := c.watch()
	c.Apply(want)
	end()
	c.Restart()
	before := c.generation()
	c.Apply(want)
	if n := c.generation() - before; n != 2 {
		t.Errorf("it took %d transactions, want one for each family", n)
	}
	got := c.state()
	c.Cleanup()
	c.Apply(want)
	if fresh := c.state(); got != fresh {
		t.Errorf("the state is\n%s\nwant\n%s", got, fresh)
	}
	for _, f := range addr.Families() {
		to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, 1), 80)
		if got, err := c.Client.Ask("tcp", to, blackbox.AnswerIn); err != nil {
			t.Errorf("%s: %v, %v", to, got, err)
		}
	}
}

// TestATableThatDoesNotPersistIsReplaced has a table as an earlier release made it, or
// somebody who loaded what nft shows: nobody can own it. It is replaced in one transaction,
// under new connections, datagrams and open flows none of which notices.
func TestATableThatDoesNotPersistIsReplaced(t *testing.T) {
	persists := true
	c := newClusterOf(t, func(b *Backend) { b.link.persists = persists })
	want := blackbox.Forwarding(blackbox.Services()...)
	load := c.load()
	for range 5 {
		c.Cleanup()
		persists = false
		c.Restart()
		c.Apply(want)
		sound := c.state()
		load.begin()
		persists = true
		c.Restart()
		before := c.generation()
		c.Apply(want)
		if n := c.generation() - before; n != 2 {
			t.Errorf("it took %d transactions, want one for each family", n)
		}
		if got := c.state(); got != sound {
			t.Errorf("replaced:\n%s\nwant\n%s", got, sound)
		}
		end := c.watch()
		c.Apply(want)
		if got := c.owners(); got != 2 {
			t.Errorf("%d tables have an owner, want both", got)
		}
		load.end()
		end()
	}
	if load.asked.Load() < 100 {
		t.Errorf("only %d questions were asked meanwhile", load.asked.Load())
	}
	t.Logf("%d questions", load.asked.Load())
}

// load asks about a VIP and a ClusterIP of each family, on new flows and on open ones, for as
// long as it is told to. A question that is lost is not asked again.
type load struct {
	c     *cluster
	asked atomic.Int64
	stop  chan struct{}
	group sync.WaitGroup
}

func (c *cluster) load() *load { return &load{c: c} }

// begin returns when each has had an answer.
func (l *load) begin() {
	l.stop = make(chan struct{})
	var ready sync.WaitGroup
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		for _, host := range []*netlab.Host{l.c.Client, l.c.P1} {
			for _, to := range []netip.Addr{blackbox.Nth(a.VIPs, 1), blackbox.Nth(a.ClusterIPs, 1)} {
				for _, network := range []string{"tcp", "udp"} {
					for _, open := range []bool{true, false} {
						ready.Add(1)
						l.group.Go(func() { l.ask(host, network, netip.AddrPortFrom(to, 80), open, ready.Done) })
					}
				}
			}
		}
	}
	ready.Wait()
}

func (l *load) end() { close(l.stop); l.group.Wait() }

func (l *load) ask(host *netlab.Host, network string, to netip.AddrPort, open bool, ready func()) {
	ready = sync.OnceFunc(ready)
	defer ready()
	var flow *netlab.Conn
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		var err error
		if flow == nil {
			flow, err = host.Dial(network, netip.AddrPort{}, to, blackbox.AnswerIn)
		}
		if err == nil {
			_, err = flow.Once().AskFor(10 * time.Second)
		}
		if err != nil {
			l.c.t.Errorf("%s over %s to %s, on an open flow: %t: %v", host.Name, network, to, open, err)
			return
		}
		l.asked.Add(1)
		ready()
		if !open {
			flow.Close()
			flow = nil
		}
	}
}
