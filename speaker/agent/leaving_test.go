package agent_test

import (
	"maps"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// twoNodes is a cluster in which another node serves as well, and a router with BFD.
func twoNodes(addresses ...netip.Addr) *view.Cluster {
	c := cluster(addresses...)
	c.Nodes["b"] = &view.Node{Name: "b", Ready: true, Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.12")}}
	c.BFDProfiles = map[string]*view.BFDProfile{"fast": {Name: "fast", Transmit: time.Second, Receive: time.Second, Multiplier: 3}}
	c.BGPPeers["tor"].BFDProfile, c.BGPPeers["tor"].SourceAddress = "fast", netip.MustParseAddr("198.51.100.11")
	return c
}

// announcing is the world of an agent that has seen the cluster, until the test is over.
func announcing(t *testing.T, c *view.Cluster) (w *world, wake func(*view.Cluster)) {
	w = &world{}
	wake, _, stop := run(t, w)
	t.Cleanup(stop)
	wake(c)
	return w, wake
}

// TestRoutesThatStillWorkAreLeftBeforeTheyGo: whatever takes them away.
func TestRoutesThatStillWorkAreLeftBeforeTheyGo(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]struct {
		change func(*view.Cluster)
		ends   bool // the session, too
	}{
		"the BGPPeer is deleted":          {func(c *view.Cluster) { delete(c.BGPPeers, "tor") }, true},
		"the node is excluded":            {func(c *view.Cluster) { c.Nodes["a"].Excluded = true }, false},
		"an autoscaler deletes the node":  {func(c *view.Cluster) { c.Nodes["a"].Condemned = true }, false},
		"the BGPAdvertisement is deleted": {func(c *view.Cluster) { delete(c.BGPAdvertisements, "bgp") }, false},
		"the BGPPeer selects others":      {func(c *view.Cluster) { c.BGPPeers["tor"].NodeSelectors = []view.Selector{never{}} }, true},
		"both at once":                    {func(c *view.Cluster) { delete(c.BGPPeers, "tor"); c.Nodes["a"].Excluded = true }, true},
		"the profile of BFD goes with it": {func(c *view.Cluster) { delete(c.BGPPeers, "tor"); delete(c.BFDProfiles, "fast") }, true},
		"another router is there meanwhile": {func(c *view.Cluster) {
			delete(c.BGPPeers, "tor")
			c.BGPPeers["next"] = &view.BGPPeer{Name: "next", PeerAddress: netip.MustParseAddr("198.51.100.2")}
		}, true},
		"the router has a session at another port": {func(c *view.Cluster) {
			delete(c.BGPPeers, "tor")
			c.BGPPeers["next"] = &view.BGPPeer{Name: "next", PeerAddress: netip.MustParseAddr("198.51.100.1"), PeerPort: 1179}
		}, true},
		"the router has a session with another address of the node": {func(c *view.Cluster) {
			from := *c.BGPPeers["tor"]
			from.Name, from.SourceAddress = "next", netip.MustParseAddr("198.51.100.13")
			delete(c.BGPPeers, "tor")
			c.BGPPeers["next"] = &from
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, wake := announcing(t, twoNodes(vip(1), vip(2)))
				changed := twoNodes(vip(1), vip(2))
				do.change(changed)
				wake(changed)
				if got := w.session("tor"); len(got.Leaving) != 2 || len(got.Routes) != 0 {
					t.Errorf("routes %v, leaving %v: want two that leave", got.Routes, got.Leaving)
				}
				if beside := w.beside(); !beside["tor"] {
					t.Errorf("BFD with %v: it ends before the session does", beside)
				}
				time.Sleep(grace - time.Millisecond)
				synctest.Wait()
				if got := w.session("tor"); len(got.Leaving) != 2 {
					t.Errorf("leaving %v before the time is over", got.Leaving)
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if got, there := w.has("tor"); there == do.ends || len(got.Leaving)+len(got.Routes) != 0 {
					t.Errorf("the session is there: %v, with %+v", there, got)
				}
				if beside := w.beside(); beside["tor"] == do.ends {
					t.Errorf("BFD with %v", beside)
				}
			})
		})
	}
}

// TestRoutesThatDoNotWorkGoAtOnce: nobody is to be sent where nobody serves.
func TestRoutesThatDoNotWorkGoAtOnce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*view.Cluster){
		"the node is without network":       func(c *view.Cluster) { c.Nodes["a"].NetworkUnavailable = true },
		"the Service goes with the BGPPeer": func(c *view.Cluster) { delete(c.BGPPeers, "tor"); delete(c.Services, ref(1)) },
		"its last endpoint goes":            func(c *view.Cluster) { c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref(1): nil}) },
		"the router gets another BGPPeer":   func(c *view.Cluster) { rename(c) },
		"the router may get it again": func(c *view.Cluster) {
			rename(c)
			c.BGPPeers["renamed"].SourceAddress = netip.Addr{}
		},
		"the session is to be another": func(c *view.Cluster) { c.BGPPeers["tor"].HoldTime = time.Minute; c.Nodes["a"].Excluded = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, wake := announcing(t, twoNodes(vip(1)))
				changed := twoNodes(vip(1))
				change(changed)
				wake(changed)
				for peer, session := range w.all() {
					if len(session.Leaving) > 0 {
						t.Errorf("%s is still to lead here: %v", peer, session.Leaving)
					}
				}
			})
		})
	}
}

// TestWhatChangesMeanwhile: a route that is wanted again is, and one whose Service goes goes at once.
func TestWhatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, wake := announcing(t, twoNodes(vip(1), vip(2)))
		excluded := func(addresses ...netip.Addr) *view.Cluster {
			c := twoNodes(addresses...)
			c.Nodes["a"].Excluded = true
			return c
		}
		wake(excluded(vip(1), vip(2)))
		time.Sleep(grace / 2)
		wake(excluded(vip(2)))
		if got := w.session("tor").Leaving; len(got) != 1 {
			t.Errorf("leaving %v, want %s alone: the other's Service is gone", got, vip(2))
		}
		wake(twoNodes(vip(2)))
		if got := w.session("tor"); len(got.Leaving) != 0 || len(got.Routes) != 1 {
			t.Errorf("routes %v, leaving %v: the node is to announce again", got.Routes, got.Leaving)
		}
		wake(excluded(vip(2)))
		time.Sleep(grace - time.Millisecond) // of its own, and not what was left of the first
		synctest.Wait()
		if got := w.session("tor").Leaving; len(got) != 1 {
			t.Errorf("leaving %v", got)
		}
		renamed := excluded(vip(2))
		rename(renamed)
		wake(renamed)
		if _, there := w.has("tor"); there {
			t.Error("the router has a session by another name, and the one before goes on")
		}
		if len(w.wrong) > 0 {
			t.Error(w.wrong)
		}
	})
}

// rename has the BGPPeer of the same router be another object.
func rename(c *view.Cluster) {
	peer := c.BGPPeers["tor"]
	delete(c.BGPPeers, "tor")
	peer.Name = "renamed"
	c.BGPPeers[peer.Name] = peer
}

// never selects nothing.
type never struct{}

func (never) Matches(map[string]string) bool { return false }

func (w *world) all() map[string]desired.Session {
	w.Lock()
	defer w.Unlock()
	return maps.Clone(w.sessions)
}

func (w *world) has(peer string) (desired.Session, bool) {
	session, there := w.all()[peer]
	return session, there
}

func (w *world) session(peer string) desired.Session { return w.all()[peer] }

// beside are the peers with BFD.
func (w *world) beside() map[string]bool {
	w.Lock()
	defer w.Unlock()
	peers := map[string]bool{}
	for name := range w.answers.BFD {
		peers[name] = true
	}
	return peers
}
