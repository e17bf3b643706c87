package hello

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestEpochsGrowWithWhatWasHeard: an epoch that a node begins is higher than any of a node
// that it has heard, directly or through another one.
func TestEpochsGrowWithWhatWasHeard(t *testing.T) {
	w := newWorld(3, 1)
	for i := range w.hosts {
		w.start(i)
	}
	w.run(time.Second)
	var last uint64
	for i := range 9 {
		epoch := w.hosts[i%3].state.advance()
		if epoch <= last {
			t.Errorf("epoch %d follows on %d", epoch, last)
		}
		last = epoch
		w.run(time.Second)
	}
}

// TestADeafNodeIsSoundOnceItIsVouchedFor: one of two nodes does not hear the other. It is
// believed to hear at all only if something else has answered it.
func TestADeafNodeIsSoundOnceItIsVouchedFor(t *testing.T) {
	w := newWorld(2, 1)
	for i := range w.hosts {
		w.start(i)
	}
	w.run(time.Second)
	w.cut[[2]int{0, 1}] = true
	deaf := func() bool { return w.hosts[0].state.view(w.now).Alive["node-1"].Deaf }
	w.run(3 * time.Second)
	if deaf() {
		t.Error("node-1 hears nobody, and is believed to be sound")
	}
	w.set(1, func(want *Wanted) { want.Vouched = true })
	w.run(2 * testDetect)
	if !deaf() {
		t.Error("node-1 is vouched for, and is not believed")
	}
	w.set(1, func(want *Wanted) { want.Vouched = false })
	w.run(2 * testDetect)
	if deaf() {
		t.Error("node-1 is not vouched for any more, and is believed")
	}
}

// TestAllClaimsAreTold: however many they are, and while they change, each that is new is told
// within some milliseconds and again in its turn, and is forgotten some time after it was told last.
func TestAllClaimsAreTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.IntRange(2, 3).Draw(t, "nodes"), rapid.Uint64().Draw(t, "seed"))
		for i := range w.hosts {
			w.start(i)
		}
		w.run(time.Second)
		w.hosts[0].state.advance() // nobody claims anything without an epoch
		size := rapid.IntRange(1, 1000).Draw(t, "claims")
		claims := make([]Claim, size)
		for i := range claims {
			claims[i] = Claim{netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Answers, uint64(i), 0}
		}
		known := func(at int) map[netip.Addr]Claim {
			of := map[netip.Addr]Claim{}
			member, _ := w.member(at, 0)
			for _, c := range member.Claims {
				of[c.Address] = c
			}
			return of
		}
		expect := func(when string) {
			for at := 1; at < len(w.hosts); at++ {
				of := known(at)
				for _, c := range claims {
					if of[c.Address] != c {
						t.Fatalf("%s: node-%d knows %+v of %d claims, want %+v", when, at, of[c.Address], size, c)
					}
				}
			}
		}
		round := time.Duration(size/(maxClaims/2)+1)*newsEvery + 2*testDelay
		w.set(0, func(want *Wanted) { want.Claims = slices.Clone(claims) })
		w.run(round)
		expect("new")
		for range rapid.IntRange(1, 50).Draw(t, "changes") {
			i := rapid.IntRange(0, size-1).Draw(t, "changed")
			claims[i].Stance, claims[i].Epoch = Leaves, claims[i].Epoch+1
		}
		w.set(0, func(want *Wanted) { want.Claims = slices.Clone(claims) })
		w.run(newsEvery*3 + 2*testDelay)
		if size < 2000*claimsHold/100 { // few enough for all to be known at one time
			w.run(TurnOf(size, len(w.hosts)))
			expect("changed")
		}
		seen := map[netip.Addr]bool{}
		for range 4 * (size/maxClaims + 1) {
			w.run(claimTurn)
			for a := range known(1) {
				seen[a] = true
			}
		}
		if len(seen) != size {
			t.Fatalf("%d of %d claims are told again", len(seen), size)
		}
		w.set(0, func(want *Wanted) { want.Claims = nil })
		w.run(claimsHold*claimTurn + 2*testInterval)
		if left := known(1); len(left) > 0 {
			t.Fatalf("%d claims are known for ever", len(left))
		}
	})
}

// TestClaimsGoToAllNodesOfALargeCluster, those that do not watch the claimant included, and without a hop between: new ones at
// once, all of them again in their turn; and they are forgotten when they are not claimed any more.
func TestClaimsGoToAllNodesOfALargeCluster(t *testing.T) {
	const size = 100
	w := startedMany(t, size, 1)
	w.hosts[0].state.advance()
	var claims []Claim
	for i := range 50 {
		claims = append(claims, Claim{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Answers, 1, 0})
	}
	expect := func(when string, want []Claim) {
		t.Helper()
		for at := 1; at < size; at++ {
			if member, _ := w.member(at, 0); !slices.Equal(member.Claims, want) {
				t.Fatalf("%s: node-%d knows %d claims, want %d", when, at, len(member.Claims), len(want))
			}
		}
	}
	w.set(0, func(want *Wanted) { want.Claims = slices.Clone(claims) })
	w.run(paced(newsEvery, size)*time.Duration(len(claims)/maxClaims+1) + 2*testDelay)
	expect("new", claims)
	for range 20 {
		w.run(testDetect)
		expect("told again", claims)
	}
	w.set(0, func(want *Wanted) { want.Claims = nil })
	w.run(claimsHold*paced(claimTurn, size) + 2*testInterval)
	expect("not claimed any more", nil)
}

// TestClaimsThatStand ride in the hellos of the rounds: where all nodes watch each other they cost no datagram, and elsewhere one
// a millisecond at most.
func TestClaimsThatStand(t *testing.T) {
	for nodes, most := range map[int]float64{3: 46, 10: 200, 50: 1089, 100: 1200} {
		w := settled(nodes, 1)
		w.hosts[0].state.advance()
		w.set(0, func(want *Wanted) {
			for i := range AtOnce {
				want.Claims = append(want.Claims, Claim{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Answers, 1, 0})
			}
		})
		w.run(time.Second)
		sent := 0
		w.left = func(from, _ int, _ []byte) {
			if from == 0 {
				sent++
			}
		}
		w.stepped = func() {
			for at := 1; at < nodes; at++ {
				if known := len(w.hosts[at].state.peers["node-0"].said.Claims); known != AtOnce {
					t.Fatalf("%d nodes: node-%d knows %d claims, want %d", nodes, at, known, AtOnce)
				}
			}
		}
		w.run(2 * time.Second)
		if rate := float64(sent) / 2; rate > most {
			t.Errorf("%d nodes: node-0 sends %.0f datagrams a second, want at most %.0f", nodes, rate, most)
		}
	}
}
