package owner

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// vetted is a vetting whose first table had no addresses, and a world in which all nodes
// have told their stations and the colleague is one.
func vetted() (*probing, stations) {
	v := &probing{self: "a", kernel: func(netip.Addr) (neighbour.Claim, bool) { return neighbour.Claim{}, false }}
	v.table(noon, nil)
	return v, stations{complete: true, known: map[hello.Station]knownStation{hello.Station(colleague): {"b", noon.Add(time.Hour)}}}
}

func all(addresses ...netip.Addr) map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	for _, a := range addresses {
		set[a] = true
	}
	return set
}

func TestANewAddressIsAskedForBeforeItIsUsed(t *testing.T) {
	v, _ := vetted()
	v.table(noon, all(vip4))
	var probed []time.Duration
	var free time.Duration
	for now := noon; free == 0 && now.Before(noon.Add(time.Second)); now = now.Add(time.Millisecond) {
		if wait := v.vet(now, on(vip4), nil, unaudited); !wait[vip4] {
			t.Fatalf("answered for after %v", now.Sub(noon))
		}
		words, done := v.due(now)
		for range words {
			probed = append(probed, now.Sub(noon))
		}
		if done {
			free = now.Sub(noon)
		}
	}
	if want := []time.Duration{0, probeEvery, 2 * probeEvery}; !slices.Equal(probed, want) || free != 3*probeEvery {
		t.Errorf("probed after %v and free after %v, want %v and %v", probed, free, want, 3*probeEvery)
	}
	if wait := v.vet(noon.Add(time.Second), on(vip4), nil, unaudited); len(wait) > 0 || !v.next().IsZero() {
		t.Errorf("waits for %v, next %v", wait, v.next())
	}
}

// TestAMachineThatHasJustBootedAsks for the addresses of its first table, which a restarted process answers for at once: a
// copy of a cluster leaves them to the first one. A node that replies hands over.
func TestAMachineThatHasJustBootedAsks(t *testing.T) {
	begin := func() (*probing, stations) {
		v, nodes := vetted()
		*v = probing{self: v.self, kernel: v.kernel, booted: true}
		v.table(noon, all(vip4))
		if wait := v.vet(noon, on(vip4), nil, unaudited); !wait[vip4] {
			t.Fatal("answered for at once")
		}
		return v, nodes
	}
	for _, test := range []struct {
		name    string
		from    neighbour.MAC
		answers bool
	}{{"a station of another cluster", stranger, false}, {"a node", colleague, true}} {
		t.Run(test.name, func(t *testing.T) {
			v, nodes := begin()
			v.claimed(noon, says(vip4, test.from), nodes)
			if wait := v.vet(noon, on(vip4), nil, unaudited); wait[vip4] == test.answers || (len(v.conflicts()) > 0) == test.answers {
				t.Errorf("waits: %v, conflicts: %v", wait, v.conflicts())
			}
		})
	}
	v, _ := begin()
	for now := noon; !now.After(noon.Add(probes * probeEvery)); now = now.Add(time.Millisecond) {
		v.due(now)
	}
	if wait := v.vet(noon.Add(probes*probeEvery), on(vip4), nil, unaudited); len(wait) > 0 {
		t.Errorf("nobody replied, and it waits for %v", wait)
	}
}

// TestAnAddressThatSomebodyHeldIsUsedAtOnce: nothing that follows a failover, a move, a
// restart or a pause waits for a probe.
func TestAnAddressThatSomebodyHeldIsUsedAtOnce(t *testing.T) {
	for name, before := range map[string]func(v *probing) (now time.Time){
		"it came with the first table": func(v *probing) time.Time {
			*v = probing{}
			v.table(noon, all(vip4))
			return noon
		},
		"another node was to answer": func(v *probing) time.Time {
			v.table(noon, all(vip4))
			v.vet(noon, nil, []netip.Addr{vip4}, unaudited)
			return noon
		},
		"another node dies while we ask": func(v *probing) time.Time {
			v.table(noon, all(vip4))
			v.vet(noon, on(vip4), nil, unaudited)
			v.vet(noon, nil, []netip.Addr{vip4}, unaudited)
			return noon.Add(time.Millisecond)
		},
		"it was nobody's for a while": func(v *probing) time.Time {
			v.held[vip4] = true
			v.table(noon, nil)
			v.table(noon.Add(mindFor-time.Second), nil)
			v.table(noon.Add(mindFor), all(vip4))
			return noon.Add(mindFor)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := vetted()
			if wait := v.vet(before(v), on(vip4), nil, unaudited); len(wait) > 0 {
				t.Errorf("it waits for %v", wait)
			}
		})
	}
	t.Run("but not one that was nobody's for long", func(t *testing.T) {
		v, _ := vetted()
		v.held[vip4] = true
		v.table(noon, nil)
		later := noon.Add(mindFor + time.Second)
		v.table(later, nil)
		v.table(later, all(vip4))
		if wait := v.vet(later, on(vip4), nil, unaudited); !wait[vip4] {
			t.Error("it is used at once")
		}
	})
}

func TestWhatAnAnswerToAProbeMeans(t *testing.T) {
	asking := func(a netip.Addr, station neighbour.MAC) neighbour.Claim {
		c := says(a, station)
		c.Probe = true
		return c
	}
	for name, test := range map[string]struct {
		claim          neighbour.Claim
		incomplete     bool
		news, withheld bool
		used           bool
	}{
		"a stranger has it":                {claim: says(vip4, stranger), news: true, withheld: true},
		"a stranger wants it, too":         {claim: asking(vip4, stranger), news: true, withheld: true},
		"a node has it, and is asked":      {claim: says(vip4, colleague), news: true},
		"a node asks, too":                 {claim: asking(vip4, colleague)},
		"somebody has it, perhaps a node":  {claim: says(vip4, stranger), incomplete: true, news: true, used: true},
		"somebody asks, perhaps a node":    {claim: asking(vip4, stranger), incomplete: true},
		"a stranger has another address":   {claim: says(vip6, stranger)},
		"a stranger wants another address": {claim: asking(vip6, stranger)},
	} {
		t.Run(name, func(t *testing.T) {
			v, nodes := vetted()
			nodes.complete = !test.incomplete
			v.table(noon, all(vip4))
			v.vet(noon, on(vip4), nil, unaudited)
			v.due(noon)
			if got := v.claimed(noon, test.claim, nodes); got != test.news {
				t.Errorf("news %t, want %t", got, test.news)
			}
			if _, withheld := v.conflicts()[vip4]; withheld != test.withheld {
				t.Errorf("withheld %t, want %t", withheld, test.withheld)
			}
			if used := !v.vet(noon, on(vip4), nil, unaudited)[vip4]; used != test.used {
				t.Errorf("used %t, want %t", used, test.used)
			}
		})
	}
}

// TestAWithheldAddressIsAskedForAgain until nobody answers any more.
func TestAWithheldAddressIsAskedForAgain(t *testing.T) {
	v, nodes := vetted()
	v.table(noon, all(vip4))
	gone := noon.Add(12 * time.Second)
	var probed []time.Duration
	var used time.Duration
	for now := noon; used == 0 && now.Before(noon.Add(time.Minute)); now = now.Add(time.Millisecond) {
		v.vet(now, on(vip4), nil, unaudited)
		words, free := v.due(now)
		if free && len(v.vet(now, on(vip4), nil, unaudited)) == 0 {
			used = now.Sub(noon)
		}
		for range words {
			probed = append(probed, now.Sub(noon))
			if now.Before(gone) && v.claimed(now, says(vip4, stranger), nodes) != (len(probed) == 1) {
				t.Errorf("%v: told more than once", now.Sub(noon))
			}
		}
		foe, withheld := v.conflicts()[vip4]
		if withheld == (used > 0) || withheld && !foe.Since.Equal(noon) {
			t.Fatalf("after %v: used after %v, foe %+v", now.Sub(noon), used, foe)
		}
	}
	s := time.Second
	want := []time.Duration{0, 5 * s, 10 * s, 15 * s, 15*s + probeEvery, 15*s + 2*probeEvery}
	if !slices.Equal(probed, want) || used != 15*s+3*probeEvery {
		t.Errorf("probed after %v and used after %v, want %v and %v", probed, used, want, 15*s+3*probeEvery)
	}
}

func TestAnInquiryEndsWithTheOwnership(t *testing.T) {
	v, nodes := vetted()
	v.table(noon, all(vip4))
	v.vet(noon, on(vip4), nil, unaudited)
	v.claimed(noon, says(vip4, stranger), nodes)
	v.vet(noon, nil, nil, unaudited)
	if len(v.conflicts()) > 0 || v.asks(vip4) || !v.next().IsZero() {
		t.Errorf("foes %v, next %v", v.conflicts(), v.next())
	}
}

// unaudited: no other station is known to have an address.
func unaudited(netip.Addr) bool { return false }
