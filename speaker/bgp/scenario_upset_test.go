package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// die ends a node's speaker with SIGKILL: die [2]
func (s *scene) die(args []string) {
	n, _, _ := s.number(args)
	n.kill()
}

// upgrade ends it as an upgrade does: it closes its connections without a word.
func (s *scene) upgrade(args []string) {
	n, _, _ := s.number(args)
	n.end("silent")
}

// leave ends it for good, as an uninstall does.
func (s *scene) leave(args []string) {
	n, _, _ := s.number(args)
	n.end("planned")
}

// drain asks the router to prefer others (RFC 8326), until its speaker ends.
func (s *scene) drain(args []string) {
	n, _, _ := s.number(args)
	n.must(order{Drain: time.Millisecond})
}

// bfd begins BFD between node 1 and a router with BFD, and waits until both sides are Up; with
// "ends" the node ends it, as its administrator does.
func (s *scene) bfd(args []string) {
	if slices.Equal(args, []string{"ends"}) {
		s.paths.Set(nil)
		return
	}
	n := s.nodes[0]
	if s.paths == nil {
		s.paths, _ = runBFD(s.t)
		go s.relay()
	}
	want := bfdTo(n.identity, s.cell.hops == "multihop")
	if want.MultiHop && s.birdd != nil {
		want.MinTTL = 63 // BIRD sends multihop packets with 64
	}
	s.paths.Set(map[string]desired.BFD{"router": want})
	if s.frrd != nil { // now, since FRR 8.4 ends BGP once if BFD was there before it
		s.frrd.configure(fmt.Sprintf("neighbor %v bfd profile fast", s.neighbour(1)))
	}
	s.near().waitFor("BFD is up at both ends", func() bool {
		var there string
		if s.birdd != nil {
			there, _ = s.birdd.bfd(s.neighbour(1))
		} else {
			there = s.frrd.bfd(s.neighbour(1)).Status
		}
		return s.paths.Status()["router"].State == bfd.Up && (there == "up" || there == "Up")
	})
}

// relay tells the speaker what BFD says, as the agent does, until the test ends.
func (s *scene) relay() {
	up := false
	for {
		select {
		case <-s.t.Context().Done():
			return
		case <-s.paths.Changed():
		}
		was := up
		up = s.paths.Status()["router"].State == bfd.Up
		if was && !up {
			_, _ = s.nodes[0].tell(order{Cut: "BFD says so"}) // who is dead need not be told
		}
	}
}

// cut makes the node's cable lose everything, while both its ends say that all is well.
func (s *scene) cut([]string) {
	s.near().must("nft", "add table netdev cut { chain in { type filter hook ingress device flbgp0 priority 0; policy drop; }; "+
		"chain out { type filter hook egress device flbgp0 priority 0; policy drop; }; }")
}

func (s *scene) mend([]string) { s.near().must("nft", "delete table netdev cut") }

// watch records what the router's kernel loses from now on, for lost.
func (s *scene) watch([]string) { s.lost = s.near().watchKernel() }

// losses compares what was lost since watch: lost none, or lost VIP2
func (s *scene) losses(args []string) {
	if s.lost == nil {
		s.fail("watch comes first")
	}
	var want []netip.Prefix
	if !slices.Equal(args, []string{"none"}) {
		s.each(args, func(args []string) {
			for _, arg := range args {
				want = append(want, netip.MustParsePrefix(arg))
			}
		})
	}
	gone := s.lost()
	s.lost = nil
	slices.SortFunc(gone, netip.Prefix.Compare)
	slices.SortFunc(want, netip.Prefix.Compare)
	if !slices.Equal(gone, want) {
		s.fail("the router's kernel lost %v, and should have lost %v", gone, want)
	}
}
