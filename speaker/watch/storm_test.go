package watch_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/view"
)

// testAStormOfChangesIsFollowed has endpoints change as fast as an API server takes it, before
// a reader that needs a while for each snapshot, as one who writes to the kernel does. What
// happens while it is busy is one change to it; nothing piles up, and it ends at the last.
func testAStormOfChangesIsFollowed(t *testing.T, server *apiserver.Server) {
	const (
		services = 8
		changes  = 400 // of each
		busy     = 20 * time.Millisecond
	)
	o := observe(t, server)
	name := func(i int) string { return fmt.Sprintf("web-%d", i) }
	address := func(i, change int) string { return fmt.Sprintf("10.%d.%d.%d", i, change/250, 1+change%250) }
	for i := range services {
		o.create(slice(name(i), name(i), address(i, 0)))
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() { // of what changed is told without end
		for {
			select {
			case <-o.noted:
			case <-stop:
				return
			}
		}
	}()

	var storm sync.WaitGroup
	begun := time.Now()
	for i := range services {
		storm.Go(func() {
			for change := 1; change <= changes; change++ {
				if err := o.Update(t.Context(), slice(name(i), name(i), address(i, change))); err != nil {
					t.Errorf("change %d of %s: %v", change, name(i), err)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { storm.Wait(); close(over) }()

	last := func(c *view.Cluster) bool {
		for i := range services {
			endpoints := c.Endpoints.Of(view.Ref{Namespace: "default", Name: name(i)})
			if len(endpoints) != 1 || endpoints[0].Addr.String() != address(i, changes) {
				return false
			}
		}
		return true
	}
	snapshots := 0
	for raging := true; raging; { // for as long as the API server takes
		select {
		case <-o.Changed():
			snapshots++
			o.Snapshot()
			time.Sleep(busy)
		case <-over:
			raging = false
		}
	}
	took := time.Since(begun)
	o.sees("the end of the storm", func(c *view.Cluster) bool {
		snapshots++
		time.Sleep(busy)
		return last(c)
	})
	t.Logf("%d changes within %v were read in %d snapshots", services*changes, took.Round(time.Millisecond), snapshots)
	// One wake-up may be left, of a change that the last snapshot had already.
	for range 2 {
		select {
		case <-o.Changed():
			if !last(o.Snapshot()) {
				t.Error("an older state came after the last")
			}
		case <-time.After(busy):
			return
		}
	}
	if n := len(o.Changed()); n > 0 {
		t.Errorf("%d wake-ups piled up", n)
	}
}
