package owner

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

var (
	stranger  = neighbour.MAC{2, 0, 0, 0, 9, 9}
	colleague = neighbour.MAC{2, 0, 0, 0, 0, 20}
)

// noon is when the tests of pure machines begin.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func on(addresses ...netip.Addr) map[netip.Addr][]links.Link {
	all := map[netip.Addr][]links.Link{}
	for _, a := range addresses {
		all[a] = []links.Link{linkstest.Ethernet(2, true)}
	}
	return all
}

func says(a netip.Addr, station neighbour.MAC) neighbour.Claim {
	return neighbour.Claim{Address: a, Station: station, Interface: "eth2", Index: 2}
}

// TestWhoIsAStranger: the stations of nodes are none, also for a while after a node was
// heard last; and nobody is while a living node has not told its own.
func TestWhoIsAStranger(t *testing.T) {
	own := []hello.Station{{2, 0, 0, 0, 0, 1}}
	view := serving("a", "b")
	var n stations
	wants := func(when string, complete, colleagues bool) {
		t.Helper()
		if got := n.strange(stranger); got != complete {
			t.Errorf("%s: the stranger is one: %t", when, got)
		}
		if n.strange(colleague) == colleagues && complete {
			t.Errorf("%s: the other node is a stranger: %t", when, colleagues)
		}
		if n.strange(neighbour.MAC(own[0])) {
			t.Errorf("%s: we are strangers to ourselves", when)
		}
	}
	n.learn(noon, "a", own, view)
	wants("b has not told its stations", false, false)
	view.Alive["b"] = hello.Member{Serving: true, Stations: []hello.Station{hello.Station(colleague)}}
	n.learn(noon, "a", own, view)
	wants("b has told them", true, true)
	delete(view.Alive, "b")
	n.learn(noon.Add(rememberFor), "a", own, view)
	wants("b is dead", true, true)
	n.learn(noon.Add(rememberFor+time.Second), "a", own, view)
	wants("b has long been dead", true, false)
	view.Settled = false
	n.learn(noon.Add(rememberFor+time.Second), "a", own, view)
	wants("we have not listened yet", false, false)
	view.Settled = true
	view.Alive["b"] = hello.Member{Stations: []hello.Station{}}
	n.learn(noon.Add(rememberFor+time.Second), "a", own, view)
	wants("b answers nowhere", true, false)
}

// TestAContestIsDefendedNowAndThen walks through a contest by the second: what is said when,
// and that it ends once the stranger has been asked in vain.
func TestAContestIsDefendedNowAndThen(t *testing.T) {
	var c defence
	mine := on(vip4)
	c.keep(noon, mine, []netip.Addr{vip4})
	said, questions := map[neighbour.Word][]int{}, []int(nil)
	ended := 0
	for second := range 180 {
		now := noon.Add(time.Duration(second) * time.Second)
		if second >= 30 && second <= 45 { // it speaks every second
			if news := c.claimed(now, says(vip4, stranger)); news != (second == 30) {
				t.Errorf("second %d: news %t", second, news)
			}
		}
		words, asked, over := c.due(now)
		if len(asked) > 0 {
			questions = append(questions, second)
		}
		for _, w := range words {
			said[w.what] = append(said[w.what], second)
		}
		if over {
			ended = second
		}
		if next := c.next(); !next.IsZero() && !next.After(now) {
			t.Fatalf("second %d: there is always something to do: %v", second, next)
		}
		c.keep(now, mine, nil)
	}
	if want := []int{30, 40, 50}; !slices.Equal(said[neighbour.Announcement], want) {
		t.Errorf("defended at %v, want %v", said[neighbour.Announcement], want)
	}
	if want := []int{1, 45, 60, 75, 90, 105}; !slices.Equal(questions, want) {
		t.Errorf("asked at %v, want %v: after it was taken, and while there is a contest", questions, want)
	}
	if ended != 113 {
		t.Errorf("the contest ended at %d, want 113: %v after the stranger was heard last", ended, overAfter)
	}
	if next := c.next(); !next.IsZero() {
		t.Errorf("something is to be done at %v", next)
	}
}

func TestAContestGoesWithTheAddress(t *testing.T) {
	var c defence
	c.keep(noon, on(vip4, vip6), nil)
	c.claimed(noon, says(vip4, stranger))
	c.claimed(noon, says(vip6, stranger))
	c.keep(noon, on(vip6), nil)
	if words, _, _ := c.due(noon); len(words) != 1 || words[0].address != vip6 || len(c.of) != 1 {
		t.Errorf("said %v, contests %v", words, c.of)
	}
	another := says(vip6, neighbour.MAC{2, 0, 0, 0, 9, 8})
	if !c.claimed(noon.Add(otherAfter), another) || !c.of[vip6].Since.Equal(noon) || c.of[vip6].Station != another.Station.String() {
		t.Errorf("a second stranger: %+v", c.of[vip6])
	}
}

// forged is one of many stations that there are not.
func forged(n int) neighbour.MAC { return neighbour.MAC{6, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)} }

// TestAFloodOfStrangersIsToldOnceInAWhile, and not each of them: of an address that is answered for, and of
// one that is not.
func TestAFloodOfStrangersIsToldOnceInAWhile(t *testing.T) {
	var c defence
	c.keep(noon, on(vip4), nil)
	v, nodes := vetted()
	v.table(noon, all(vip6))
	v.vet(noon, on(vip6), nil, unaudited)
	var contested, withheld []time.Duration
	for n := range 10_000 { // 100 s
		now := noon.Add(time.Duration(n) * 10 * time.Millisecond)
		if c.claimed(now, says(vip4, forged(n))) {
			contested = append(contested, now.Sub(noon))
		}
		if v.claimed(now, says(vip6, forged(n)), nodes) {
			withheld = append(withheld, now.Sub(noon))
		}
	}
	want := []time.Duration{0, otherAfter, 2 * otherAfter}
	if !slices.Equal(contested, want) || !slices.Equal(withheld, want) {
		t.Errorf("news at %v of the one, at %v of the other, want %v of both", contested, withheld, want)
	}
	last := noon.Add(9_999 * 10 * time.Millisecond)
	if c.due(last.Add(overAfter - time.Second)); len(c.of) != 1 {
		t.Error("it was over before nobody was heard for long")
	}
	if _, _, over := c.due(last.Add(overAfter)); !over || len(c.of) > 0 {
		t.Error("it is not over")
	}
}

// TestTwoStrangersThatBothAnswer are told of once, and the second one when the first has gone.
func TestTwoStrangersThatBothAnswer(t *testing.T) {
	var c defence
	mine, second := on(vip4), neighbour.MAC{2, 0, 0, 0, 9, 8}
	c.keep(noon, mine, nil)
	told := map[time.Duration]string{}
	for now := noon; now.Before(noon.Add(time.Hour)); now = now.Add(askEvery) {
		strangers := []neighbour.MAC{stranger, second}
		if now.Sub(noon) >= 30*time.Minute {
			strangers = strangers[1:]
		}
		for _, station := range strangers {
			if c.claimed(now, says(vip4, station)) {
				told[now.Sub(noon)] = c.of[vip4].Station
			}
		}
		c.due(now)
	}
	want := map[time.Duration]string{0: stranger.String(), 30*time.Minute + 2*askEvery: second.String()}
	if !maps.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// TestTwoThatBothDefend are nodes of two clusters, each of which hears all that the other says: one of them is heard no more
// soon, and the other goes on. A station that only answers is defended against whatever its MAC, and so is one that is
// silent again.
func TestTwoThatBothDefend(t *testing.T) {
	const low, high = 0, 1
	var sides [2]defence
	macs := [2]neighbour.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	for i := range sides {
		link := linkstest.Ethernet(2, true)
		link.MAC = macs[i][:]
		sides[i].keep(noon, map[netip.Addr][]links.Link{vip4: {link}}, nil)
	}
	announced, told := [2][]int{}, [2][]int{}
	hear := func(second, by, of int, announces bool) {
		claim := says(vip4, macs[of])
		claim.Announced, claim.Reply = announces, !announces
		if sides[by].mine != nil && sides[by].claimed(noon.Add(time.Duration(second)*time.Second), claim) {
			told[by] = append(told[by], second)
		}
	}
	hear(0, low, high, true) // it has come onto the network
	const quiet, ended = 120, 300
	for second := range ended {
		now := noon.Add(time.Duration(second) * time.Second)
		for range 2 { // what one says, the other hears within the second
			for i := range sides {
				words, asked, _ := sides[i].due(now)
				if next := sides[i].next(); !next.IsZero() && !next.After(now) {
					t.Fatalf("second %d: there is always something to do: %v", second, next)
				}
				if len(words) > 0 {
					announced[i] = append(announced[i], second)
					hear(second, 1-i, i, true)
				}
				if len(asked) > 0 && (i == low || second < quiet) { // what is low answers no more later
					hear(second, i, 1-i, false)
				}
			}
		}
		if second == quiet {
			sides[low].keep(now, nil, nil)
		}
		if second == 200 {
			hear(second, high, low, false)
		}
	}
	if a := announced[low]; len(a) < 8 || a[len(a)-1] < quiet-int(askEvery/time.Second) {
		t.Errorf("the lower announced at %v", a)
	}
	if want := []int{0, 15, 158, 201}; !slices.Equal(announced[high], want) {
		t.Errorf("the higher announced at %v, want %v", announced[high], want)
	}
	if !slices.Equal(told[low], []int{0}) || !slices.Equal(told[high], []int{0, 30, 200}) {
		t.Errorf("news at %v of the one, and %v of the other", told[low], told[high])
	}
}
