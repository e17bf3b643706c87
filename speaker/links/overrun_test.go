package links_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
)

// lines sends each line of a log to a channel, unless nobody has taken the last one.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// When notices are lost because too many came at once, a link came up only if its carrier was gone
// meanwhile: one that came up is silent until something is heard there, and its addresses move.
func TestLostNoticesAreNoLinksThatComeUp(t *testing.T) {
	h, segment := linkstest.NewHost(t), linkstest.NewSegment(t)
	segment.Attach(h, "eth0", "192.0.2.1/24")
	plug := segment.Attach(h, "eth1", "198.51.100.1/24")
	h.Add(pair("d0"))
	logged := make(lines, 1)
	w := links.NewWatcher(slog.New(slog.NewTextHandler(io.MultiWriter(logged, testlog.Output(t)), nil)))
	w.Shrink(1)
	ctx, cancel := context.WithCancel(t.Context())
	done := h.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { cancel(); <-done })
	up := func(l links.Link) bool { return l.Up && l.Running }
	until(t, w, "eth0", having("eth0", up))
	s := until(t, w, "eth1", having("eth1", up))
	eth0, _ := named(s, "eth0")
	eth1, _ := named(s, "eth1")

	next := 0
	overrun := func() {
		t.Helper()
		select {
		case <-logged: // what was lost before, as when the links came up
		default:
		}
		for range 30000 { // more than are added in the second in which nobody listens after that
			next++
			h.AddAddress("d0", fmt.Sprintf("10.%d.%d.1/24", next>>8, next&0xff))
			select {
			case <-logged:
				return
			default:
			}
		}
		t.Fatal("no notice was lost")
	}
	overrun()
	h.AddAddress("eth0", "192.0.2.3/24") // by which the new list is known
	s = until(t, w, "a new list", having("eth0", func(l links.Link) bool { return len(l.Prefixes) > len(eth0.Prefixes) }))
	for _, was := range []links.Link{eth0, eth1} {
		if l, _ := named(s, was.Name); l.Ups != was.Ups {
			t.Errorf("%s came up %d times and was up all along, want %d", was.Name, l.Ups, was.Ups)
		}
	}

	overrun()
	// For a second nobody listens.
	segment.Pull(plug)
	for deadline := time.Now().Add(time.Minute); h.Link("eth1").Attrs().RawFlags&unix.IFF_RUNNING != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("eth1 keeps its carrier")
		}
	}
	segment.Plug(plug)
	s = until(t, w, "eth1 up again", having("eth1", func(l links.Link) bool { return up(l) && l.Ups > eth1.Ups }))
	if l, _ := named(s, "eth1"); l.Ups != eth1.Ups+1 {
		t.Errorf("eth1 came up %d times, want once more than %d", l.Ups, eth1.Ups)
	}
	if l, _ := named(s, "eth0"); l.Ups != eth0.Ups {
		t.Errorf("eth0 came up %d times, want %d", l.Ups, eth0.Ups)
	}
}
