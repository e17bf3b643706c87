package netlab

import (
	"os"
	"sync"
	"testing"
	"time"
)

// TestTheMainThreadStaysAtHome: it cannot end, and what reads /proc/self would see another network.
func TestTheMainThreadStaysAtHome(t *testing.T) {
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(t, "elsewhere")
	for range 100 { // threads that wait beside others are taken again, the main one among them
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { h.Do(func() { time.Sleep(100 * time.Microsecond) }) })
		}
		all.Wait()
	}
	if now, err := os.Readlink("/proc/self/ns/net"); now != home || err != nil {
		t.Errorf("the main thread is in %s, was in %s (%v)", now, home, err)
	}
}
