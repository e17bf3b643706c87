package owner

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

var (
	ownersMAC = neighbour.MAC{2, 0, 0, 0, 0, 30}
	thirdsMAC = neighbour.MAC{2, 0, 0, 0, 0, 31}
)

// beaten is a patrol of the runner-up of an address, and the mesh as it sees it.
func beaten(addresses ...netip.Addr) (*audit, hello.View, reach) {
	p := newPatrol()
	v := serving("a", "b", "c")
	v.Alive["b"] = hello.Member{Serving: true, Stations: []hello.Station{hello.Station(ownersMAC)}}
	v.Alive["c"] = hello.Member{Serving: true, Stations: []hello.Station{hello.Station(thirdsMAC)}}
	r := reach{}
	for _, a := range addresses {
		r[a] = []links.Link{linkstest.Ethernet(2, true)}
	}
	p.keep(noon, behindB(addresses...), r, len(addresses))
	return p, v, r
}

// newPatrol is one of node a, whose kernel answers for nothing.
func newPatrol() *audit {
	return &audit{
		self: "a", jitter: func(time.Duration) time.Duration { return 0 },
		strange: func(m neighbour.MAC) bool { return m == stranger },
		kernel:  func(map[netip.Addr][]links.Link) map[netip.Addr]string { return nil },
	}
}

func behindB(addresses ...netip.Addr) map[netip.Addr]standby {
	behind := map[netip.Addr]standby{}
	for _, a := range addresses {
		behind[a] = standby{owner: "b"}
	}
	return behind
}

// walk goes on until a time, with what is heard as the answer to each question, and returns
// when questions were sent.
func walk(p *audit, v hello.View, from, to time.Time, heard ...neighbour.Claim) (asked []time.Duration) {
	for now := from; now.Before(to); now = now.Add(50 * time.Millisecond) {
		addresses, listen, _ := p.due(now, v)
		if listen && len(p.under()) > 0 { // now its answers would be heard
			addresses, _, _ = p.due(now, v)
		}
		if len(addresses) == 0 {
			continue
		}
		asked = append(asked, now.Sub(noon))
		for _, claim := range heard {
			if p.asks(claim.Address) {
				p.claimed(claim, claim.Station != stranger)
			}
		}
	}
	return asked
}

func TestAPatrolAsksNowAndThen(t *testing.T) {
	p, v, _ := beaten(vip4)
	asked := walk(p, v, noon, noon.Add(2*patrolEvery), says(vip4, ownersMAC))
	if want := []time.Duration{patrolAfter, patrolAfter + patrolWait + patrolEvery}; !slices.Equal(asked, want) {
		t.Errorf("asked after %v, want %v", asked, want)
	}
	if len(p.doubts()) > 0 {
		t.Errorf("doubts %+v", p.doubts())
	}
	if len(p.under()) > 0 {
		t.Errorf("still listens for %v", p.under())
	}
}

// What nobody can answer for needs no question, and is over when somebody can.
func TestAPatrolTellsOfWhatNobodyCanAnswerFor(t *testing.T) {
	p := newPatrol()
	v, r := serving("a"), reach{vip4: nil}
	p.keep(noon, map[netip.Addr]standby{vip4: {}}, r, 1)
	told := p.next()
	if want := noon.Add(patrolAfter); !told.Equal(want) {
		t.Fatalf("it goes on at %v, want %v", told, want)
	}
	if asked, _, news := p.due(told.Add(-time.Millisecond), v); len(asked) > 0 || news || len(p.doubts()) > 0 {
		t.Errorf("too soon: %v, %t, %+v", asked, news, p.doubts())
	}
	if asked, _, news := p.due(told, v); len(asked) > 0 || !news || p.doubts()[vip4] != (api.Doubt{Since: told}) {
		t.Errorf("asked %v, news %t, doubts %+v", asked, news, p.doubts())
	}
	if asked, _, news := p.due(told, v); len(asked) > 0 || news || !p.next().IsZero() {
		t.Errorf("told again: %v, %t, next %v", asked, news, p.next())
	}
	p.keep(told, map[netip.Addr]standby{vip4: {}}, r, 1)
	if len(p.doubts()) != 1 {
		t.Error("forgotten though it goes on")
	}
	p.keep(told, nil, r, 1)
	if len(p.doubts()) > 0 {
		t.Errorf("never over: %+v", p.doubts())
	}
}

func TestAPatrolDoubtsWhatItFindsTwice(t *testing.T) {
	unanswered := api.Doubt{Owner: "b", Interface: "eth2"}
	third := api.Doubt{Owner: "b", Node: "c", Station: thirdsMAC.String(), Interface: "eth2"}
	thirdAlone, strange := third, api.Doubt{Owner: "b", Station: stranger.String(), Interface: "eth2"}
	thirdAlone.Alone = true
	strangeAlone := strange
	strangeAlone.Alone = true
	probe := says(vip4, thirdsMAC)
	probe.Probe = true
	for name, c := range map[string]struct {
		heard []neighbour.Claim
		want  *api.Doubt
	}{
		"the owner":                    {[]neighbour.Claim{says(vip4, ownersMAC)}, nil},
		"nobody":                       {nil, &unanswered},
		"the owner and another node":   {[]neighbour.Claim{says(vip4, ownersMAC), says(vip4, thirdsMAC)}, &third},
		"another node in its place":    {[]neighbour.Claim{says(vip4, thirdsMAC)}, &thirdAlone},
		"a node that asks, too":        {[]neighbour.Claim{says(vip4, ownersMAC), probe}, nil},
		"the owner and a stranger":     {[]neighbour.Claim{says(vip4, ownersMAC), says(vip4, stranger)}, &strange},
		"a stranger in its place":      {[]neighbour.Claim{says(vip4, stranger)}, &strangeAlone},
		"a node and a stranger":        {[]neighbour.Claim{says(vip4, stranger), says(vip4, thirdsMAC)}, &thirdAlone},
		"one that may be a node's yet": {[]neighbour.Claim{says(vip4, neighbour.MAC{2, 0, 0, 0, 0, 77})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, v, _ := beaten(vip4)
			first := noon.Add(patrolAfter + patrolAsks*patrolWait + patrolWait)
			walk(p, v, noon, first, c.heard...)
			if found := p.doubts(); len(found) > 0 {
				t.Fatalf("after one round: %+v", found)
			}
			second := first.Add(patrolAgain + patrolAsks*patrolWait)
			walk(p, v, first, second, c.heard...)
			found, doubted := p.doubts()[vip4]
			if doubted != (c.want != nil) {
				t.Fatalf("doubted: %t, %+v", doubted, found)
			}
			if !doubted {
				return
			}
			since := found.Since
			if found.Since = (time.Time{}); found != *c.want {
				t.Errorf("found %+v, want %+v", found, *c.want)
			}
			// It goes on as the same, and is over with one good round.
			third := second.Add(patrolAgain + patrolAsks*patrolWait)
			walk(p, v, second, third, c.heard...)
			if again := p.doubts()[vip4]; !again.Since.Equal(since) {
				t.Errorf("it became another: %+v", again)
			}
			walk(p, v, third, third.Add(patrolAgain+patrolWait), says(vip4, ownersMAC))
			if found := p.doubts(); len(found) > 0 {
				t.Errorf("never over: %+v", found)
			}
		})
	}
}

// TestAPatrolLeavesAChangeAlone: with a new owner all that was found is void.
func TestAPatrolLeavesAChangeAlone(t *testing.T) {
	p, v, r := beaten(vip4)
	later := noon.Add(patrolAfter + 2*patrolAgain)
	walk(p, v, noon, later)
	if len(p.doubts()) != 1 {
		t.Fatalf("doubts %+v", p.doubts())
	}
	p.keep(later, map[netip.Addr]standby{vip4: {owner: "c"}}, r, 1)
	if len(p.doubts()) > 0 || len(p.under()) > 0 {
		t.Errorf("doubts %+v, listens for %v", p.doubts(), p.under())
	}
	if next := p.next(); next.Before(later.Add(patrolAfter)) {
		t.Errorf("asks again after %v", next.Sub(later))
	}
	p.keep(later, nil, r, 1)
	if !p.next().IsZero() {
		t.Error("an address that is not ours to take over is asked for")
	}
}

// TestAPatrolDoubtsNobodyUnknown: of a release that does not tell its stations.
func TestAPatrolDoubtsNobodyUnknown(t *testing.T) {
	p, v, _ := beaten(vip4)
	v.Alive["b"] = hello.Member{Serving: true}
	walk(p, v, noon, noon.Add(time.Minute))
	if len(p.doubts()) > 0 {
		t.Errorf("doubts %+v", p.doubts())
	}
}

// TestAPatrolGoesInRounds: however many addresses there are, few are asked for at once, and
// all in the end.
func TestAPatrolGoesInRounds(t *testing.T) {
	var addresses []netip.Addr
	for a := vip4; len(addresses) < 3*patrolSize+1; a = a.Next() {
		addresses = append(addresses, a)
	}
	p, v, _ := beaten(addresses...)
	asked := map[netip.Addr]bool{}
	for now := noon; now.Before(noon.Add(patrolAfter + 5*patrolWait)); now = now.Add(50 * time.Millisecond) {
		now, _, _ := p.due(now, v)
		if len(now) > patrolSize || len(p.under()) > patrolSize {
			t.Fatalf("%d asked for, %d listened for", len(now), len(p.under()))
		}
		for _, a := range now {
			asked[a] = true
			p.claimed(says(a, ownersMAC), true)
		}
	}
	if len(asked) != len(addresses) {
		t.Errorf("%d of %d were asked for", len(asked), len(addresses))
	}
}

// TestAPatrolIsSlowWhereThereIsMuch: all nodes together ask so often in a second.
func TestAPatrolIsSlowWhereThereIsMuch(t *testing.T) {
	p, v, r := beaten(vip4)
	const all = 10_000
	p.keep(noon, behindB(vip4), r, all)
	every := 3 * all * time.Second / patrolPace / 2
	asked := walk(p, v, noon, noon.Add(2*every), says(vip4, ownersMAC))
	if want := []time.Duration{patrolAfter, patrolAfter + patrolWait + every}; !slices.Equal(asked, want) {
		t.Errorf("asked after %v, want %v", asked, want)
	}
}

// TestAPatrolKnowsItsOwnKernel, which it cannot hear.
func TestAPatrolKnowsItsOwnKernel(t *testing.T) {
	p, v, _ := beaten(vip4)
	p.kernel = func(asked map[netip.Addr][]links.Link) map[netip.Addr]string {
		if len(asked) != 1 || len(asked[vip4]) != 1 {
			t.Errorf("asked of %v", asked)
		}
		return map[netip.Addr]string{vip4: "kube-ipvs0"}
	}
	later := noon.Add(patrolAfter + 2*patrolAgain)
	walk(p, v, noon, later, says(vip4, ownersMAC))
	found := p.doubts()[vip4]
	found.Since = time.Time{}
	if want := (api.Doubt{Owner: "b", Node: "a", Station: neighbour.MAC(linkstest.Ethernet(2, true).MAC).String(), Interface: "kube-ipvs0"}); found != want {
		t.Errorf("found %+v, want %+v", found, want)
	}
	p.kernel = func(map[netip.Addr][]links.Link) map[netip.Addr]string { return nil }
	walk(p, v, later, later.Add(2*patrolAgain), says(vip4, ownersMAC))
	if len(p.doubts()) > 0 {
		t.Errorf("never over: %+v", p.doubts())
	}
}

func TestBehind(t *testing.T) {
	for name, c := range map[string]struct {
		candidates []string
		alive      []string
		want       standby
	}{
		"the next":                      {[]string{"b", "a", "c"}, []string{"a", "b", "c"}, standby{"b", 0}},
		"the next of those alive":       {[]string{"b", "c", "a"}, []string{"a", "b"}, standby{"b", 0}},
		"the owner itself":              {[]string{"a", "b"}, []string{"a", "b"}, standby{}},
		"the one after the next":        {[]string{"b", "c", "a"}, []string{"a", "b", "c"}, standby{"b", 1}},
		"the last that stands by":       {[]string{"b", "c", "d", "e", "f", "g", "x", "h", "i", "a"}, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}, standby{"b", 7}},
		"after those":                   {[]string{"b", "c", "d", "e", "f", "g", "h", "i", "j", "a"}, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}, standby{}},
		"not a candidate":               {[]string{"b", "c"}, []string{"a", "b", "c"}, standby{}},
		"the next, of a dead first one": {[]string{"d", "b", "a"}, []string{"a", "b"}, standby{"b", 0}},
	} {
		table := api.Table{Node: "a", Serving: true, Claims: claim(vip4, c.candidates...)}
		_, _, behind := owned(&table, serving(c.alive...), reachOf(&table, links.NewSnapshot(linkstest.Ethernet(2, true))), true, keeper{})
		if behind[vip4] != c.want {
			t.Errorf("%s: behind %+v, want %+v", name, behind[vip4], c.want)
		}
	}
}

// TestAFloodCostsAPatrolNoMemory: stations that do not exist answer without end, and the one that is to
// answer is heard all the same.
func TestAFloodCostsAPatrolNoMemory(t *testing.T) {
	p, v, _ := beaten(vip4)
	begun := noon.Add(patrolAfter)
	p.due(begun, v)
	for n := range 10_000 {
		p.claimed(says(vip4, forged(n)), false)
	}
	p.claimed(says(vip4, ownersMAC), true)
	if b := p.beats[vip4]; len(b.heard) > patrolHeard+1 || !b.answered(v) {
		t.Errorf("%d stations are noted, the owner's among them: %t", len(b.heard), b.answered(v))
	}
}
