package nftables

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
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
	if got := c.owners(); got != 0 || first.link.conn != nil {
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
		f.salt = []byte("another version")
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

// TestATableThatDoesNotPersistIsLeftOpen has a table that somebody else has made, as by
// loading what nft shows: it cannot be owned, and is repaired as on older kernels.
func TestATableThatDoesNotPersistIsLeftOpen(t *testing.T) {
	c := newClusterOf(t, old)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	sound := c.state()
	c.backend.link.persists = true
	defer c.watch()()
	c.Apply(want)
	c.Run("nft", "flush", "table", "ip", tableName)
	c.Apply(want)
	if got := c.state(); got != sound {
		t.Errorf("after a flush:\n%s\nwant\n%s", got, sound)
	}
	c.Run("nft", "flush", "ruleset")
	c.Apply(want)
	if got := c.owners(); got != 2 {
		t.Errorf("made anew, %d tables have an owner, want both", got)
	}
}
