package handover

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// running has a handover run on a node until it is stopped.
func running(t *testing.T, node *netlab.Host) (h *Handover, stop func()) {
	h = New(testlog.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go node.Do(func() {
		defer close(ended)
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return h, func() { cancel(); <-ended }
}

// eventually waits for something that comes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > blackbox.AnswerIn {
			t.Fatal("not ", what)
		}
	}
}

// TestTheKernelStaysAsWanted: what others change is written again, and a process that ends leaves the table to the
// next, which touches nothing before it knows what is wanted.
func TestTheKernelStaysAsWanted(t *testing.T) {
	node := netlab.NewHost(t, "node")
	there := func(address string) bool {
		return strings.Contains(blackbox.RunOn(t, node, "nft", "list", "ruleset"), address)
	}
	h, stop := running(t, node)
	first := map[netip.Addr]netip.Addr{netip.MustParseAddr("198.51.100.1"): netip.MustParseAddr("192.0.2.1")}
	<-h.Set(first)
	if !there("198.51.100.1") {
		t.Error("the kernel has nothing, and is said to have it")
	}
	if !isClosed(h.Set(first)) {
		t.Error("what is in place is waited for")
	}
	blackbox.RunOn(t, node, "nft", "flush", "ruleset")
	eventually(t, "repaired", func() bool { return there("198.51.100.1") })
	stop()
	h, stop = running(t, node)
	time.Sleep(2 * kernelwatch.Interval)
	if !there("198.51.100.1") {
		t.Error("a new process took away what it knows nothing of")
	}
	<-h.Set(map[netip.Addr]netip.Addr{})
	if there("198.51.100.1") {
		t.Error("what is not wanted stays")
	}
	stop()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestARefusalIsToldAndOver: nothing waits for a kernel that refuses, and once it does not, that is told, too.
func TestARefusalIsToldAndOver(t *testing.T) {
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		h := New(testlog.New(t))
		tried := h.Set(handedFrom(1))
		blackbox.Powerless(t, h.apply)
		if !isClosed(tried) || !strings.Contains(h.Failure(), unix.EPERM.Error()) || len(h.Changed()) != 1 {
			t.Errorf("tried %t, failure %q, told %d times", isClosed(tried), h.Failure(), len(h.Changed()))
		}
		<-h.Changed()
		for _, f := range h.table.families {
			f.tried = f.tried.Add(-tryEvery)
		}
		h.apply()
		if h.Failure() != "" || len(h.Changed()) != 1 {
			t.Errorf("failure %q, told %d times", h.Failure(), len(h.Changed()))
		}
	})
}
