package bfd

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
)

// on is a node with an interface that has these prefixes.
func on(prefixes ...string) *links.Snapshot {
	l := links.Link{Index: 2, Name: "eth0", Up: true, Running: true}
	for _, p := range prefixes {
		l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
	}
	return links.NewSnapshot(l)
}

func byNetwork(peer netip.Addr) map[string]desired.BFD {
	w := wantedTo(peer)
	w.HopsByNetwork, w.MinTTL = true, 250
	return map[string]desired.BFD{"p": w}
}

func TestMeasured(t *testing.T) {
	now := time.Unix(1000, 0)
	since := func(d time.Duration) distance { return distance{apart: now.Add(-d)} }
	near, far := distance{}, distance{far: true}
	for name, c := range map[string]struct {
		before   distance
		near, up bool
		want     distance
	}{
		"near stays near":                  {before: near, near: true, want: near},
		"far stays far":                    {before: far, want: far},
		"a network of the peer's comes":    {before: far, near: true, want: near},
		"but the session is up":            {before: far, near: true, up: true, want: far},
		"that network goes":                {before: near, want: since(0)},
		"but the session is up then":       {before: near, up: true, want: near},
		"it is gone for a moment":          {before: since(apartFor - 1), want: since(apartFor - 1)},
		"and comes back":                   {before: since(apartFor - 1), near: true, want: near},
		"the session comes up without it":  {before: since(apartFor - 1), up: true, want: near},
		"it is gone for good":              {before: since(apartFor), want: far},
		"back at the end of the last hour": {before: since(time.Hour), near: true, want: near},
	} {
		if got := c.before.measured(now, c.near, c.up); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestHopsByNetwork: the session is over one hop where the peer is on a network of the node, whatever
// minimum TTL there is, and over several where it is not; one that goes by links waits for them.
func TestHopsByNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		have     *links.Snapshot
		multiHop bool
		minTTL   uint8
	}{
		"on a network": {on("192.0.2.1/24"), false, 0},
		"on none":      {on("198.51.100.1/24", "192.0.2.1/32"), true, 250},
	} {
		s := newSessions(slog.New(slog.DiscardHandler), newCable().end(addrA), []byte("a boot"))
		if s.Set("", byNetwork(addrB), nil); len(s.all) != 0 || len(s.Status()) != 0 {
			t.Errorf("%s: %d sessions before the links are known", name, len(s.all))
		}
		s.Set("", byNetwork(addrB), c.have)
		held := s.all[key{peer: addrB, multiHop: c.multiHop}]
		if len(s.all) != 1 || held == nil || held.want.MinTTL != c.minTTL {
			t.Errorf("%s: %+v", name, s.all)
		}
		if s.Set("", byNetwork(addrB), nil); len(s.all) != 1 || len(s.Status()) != 1 {
			t.Errorf("%s: the links are not known any more, and there are %d sessions", name, len(s.all))
		}
	}
}

// TestHopsToThePeerOfAnAddress: the router at the other end of a tunnel is one hop away where FRR, which
// it may run, takes this node to be so.
func TestHopsToThePeerOfAnAddress(t *testing.T) {
	router := netip.MustParseAddr("2001:db8::2")
	for name, c := range map[string]struct {
		peered   string
		multiHop bool
	}{
		"its subnet":       {"2001:db8::1/64", false},
		"its address only": {"2001:db8::1/128", true},
	} {
		tunnel := links.Link{Index: 2, Name: "gre1", Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::1/128")}}
		tunnel.Peered = []netip.Prefix{netip.MustParsePrefix(c.peered)}
		s := newSessions(slog.New(slog.DiscardHandler), newCable().end(addrA), []byte("a boot"))
		s.Set("", byNetwork(router), links.NewSnapshot(tunnel))
		if len(s.all) != 1 || s.all[key{peer: router, multiHop: c.multiHop}] == nil {
			t.Errorf("%s: %+v", name, s.all)
		}
	}
}

// TestDistanceOutlivesACable: an interface that loses its address for a moment changes nothing, and one
// that never gets it back has the session be over several hops, which counts failures as before.
func TestDistanceOutlivesACable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		a, stopA := runOn(t, c.end(addrA))
		b, stopB := runOn(t, c.end(addrB))
		defer stopA()
		defer stopB()
		var have atomic.Pointer[links.Snapshot]
		set := func(s *links.Snapshot) {
			have.Store(s)
			a.Set("", byNetwork(addrB), s)
		}
		over := make(chan struct{})
		defer close(over)
		go func() { // as the server does
			for {
				select {
				case <-over:
					return
				case <-a.Changed():
					a.Set("", byNetwork(addrB), have.Load())
				}
			}
		}()
		multiHop := func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.names["p"].multiHop
		}
		set(on("192.0.2.1/24"))
		b.Set("", map[string]desired.BFD{"p": wantedTo(addrA)}, nil)
		time.Sleep(5 * time.Second)

		set(on())
		if time.Sleep(2 * apartFor); state(a) != Up || multiHop() {
			t.Fatalf("up, and the network is gone: %v, multihop %t", state(a), multiHop())
		}
		c.pull(true)
		time.Sleep(apartFor / 2)
		c.pull(false)
		set(on("192.0.2.1/24"))
		if time.Sleep(5 * time.Second); state(a) != Up || multiHop() || a.Status()["p"].Failures != 1 {
			t.Errorf("back after half a minute: %+v, multihop %t", a.Status()["p"], multiHop())
		}
		c.pull(true)
		set(on())
		time.Sleep(apartFor + time.Second)
		c.pull(false)
		far := wantedTo(addrA)
		far.MultiHop = true
		b.Set("", map[string]desired.BFD{"p": far}, nil)
		if time.Sleep(5 * time.Second); state(a) != Up || !multiHop() || a.Status()["p"].Failures != 2 {
			t.Errorf("moved for good: %+v, multihop %t", a.Status()["p"], multiHop())
		}
	})
}
