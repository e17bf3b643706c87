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

// asked is for how long a kernel is asked that does not answer.
const asked = questions * questionEvery

// bereft is a world in which b fell silent, which had an address.
type bereft struct {
	dataplanes
	stations stations
	previous previousOwners
	table    *api.Table
	reach    reach
	at       netip.Addr // of b
	on       links.Link
}

func bereaved() *bereft {
	b := &bereft{
		dataplanes: dataplanes{}, previous: previousOwners{vip4: "b"}, at: netip.MustParseAddr("192.0.2.2"), on: linkstest.Ethernet(2, true),
		stations: stations{known: map[hello.Station]knownStation{hello.Station(colleague): {"b", noon.Add(time.Hour)}}},
	}
	b.on.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}
	b.table = &api.Table{Node: "a", Peers: map[string]hello.Peer{"b": {Addrs: []netip.Addr{b.at}}}}
	b.reach = reach{vip4: {b.on}}
	b.update(noon, "b")
	return b
}

func (b *bereft) update(now time.Time, silent ...string) {
	b.dataplanes.update(now, silent, b.previous, b.table, b.reach)
}

// answer is the word of a station.
func (b *bereft) answer(now time.Time, station neighbour.MAC) (news bool) {
	return b.claimed(now, neighbour.Claim{Address: b.at, Station: station, Index: b.on.Index, Reply: true}, b.stations)
}

// pass lets time pass from noon on, in which the kernel answers for a while. It returns when it was
// asked and when it was found dead, both since noon.
func (b *bereft) pass(answers, until time.Duration) (questions []time.Duration, dead time.Duration) {
	for now := b.next(); !now.IsZero() && now.Before(noon.Add(until)); now = b.next() {
		ask, news := b.due(now)
		b.update(now, "b")
		for range ask {
			questions = append(questions, now.Sub(noon))
			if now.Sub(noon) < answers {
				b.answer(now, colleague)
			}
		}
		if news {
			return questions, now.Sub(noon)
		}
	}
	return questions, 0
}

func TestADeadKernelIsFoundInABlink(t *testing.T) {
	b := bereaved()
	if !b.goOn("b") {
		t.Error("its connections are given up before it was asked")
	}
	questions, dead := b.pass(0, time.Minute)
	if want := []time.Duration{0, questionEvery, 2 * questionEvery, 3 * questionEvery}; !slices.Equal(questions, want) || dead != asked {
		t.Errorf("asked after %v and dead after %v, want %v and %v", questions, dead, want, asked)
	}
	if b.goOn("b") || len(b.under()) > 0 || !b.next().IsZero() {
		t.Errorf("dead, and: goes on %t, asked for %v, next %v", b.goOn("b"), b.under(), b.next())
	}
	// The machine boots. It knows nothing of what was.
	if b.update(noon.Add(time.Minute), "b"); b.answer(noon.Add(time.Minute), colleague) || b.goOn("b") {
		t.Error("a machine that has booted is taken for one that went on")
	}
	b.update(noon.Add(2 * time.Minute))
	if b.update(noon.Add(3*time.Minute), "b"); !b.goOn("b") {
		t.Error("not asked when it fell silent once more")
	}
}

func TestAKernelGoesOnForAsLongAsItAnswers(t *testing.T) {
	b := bereaved()
	questions, dead := b.pass(time.Minute, 2*time.Minute)
	if len(questions) != 60+4 || dead < time.Minute || dead > time.Minute+askAgain+asked {
		t.Errorf("asked %d times and dead after %v, of which it answered for a minute", len(questions), dead)
	}
	if _, dead := bereaved().pass(time.Hour, time.Hour); dead != forwardsFor {
		t.Errorf("believed for %v, want %v", dead, forwardsFor)
	}
}

func TestWhoseWordIsTakenForAKernels(t *testing.T) {
	now := noon.Add(time.Millisecond)
	for what, tt := range map[string]struct {
		claim func(c *neighbour.Claim)
		want  bool
	}{
		"its own":            {func(*neighbour.Claim) {}, true},
		"unsolicited":        {func(c *neighbour.Claim) { c.Reply = false }, false},
		"a router's":         {func(c *neighbour.Claim) { c.Station = stranger }, false},
		"of another address": {func(c *neighbour.Claim) { c.Address = vip4 }, false},
		"on another network": {func(c *neighbour.Claim) { c.Index++ }, false},
		"as it boots, to find out whether its address is free": {func(c *neighbour.Claim) { c.Probe, c.Reply = true, false }, false},
	} {
		b := bereaved()
		b.due(noon)
		c := neighbour.Claim{Address: b.at, Station: colleague, Index: b.on.Index, Reply: true}
		tt.claim(&c)
		if got := b.claimed(now, c, b.stations); got != tt.want {
			t.Errorf("%s: %t, want %t", what, got, tt.want)
		}
	}
}

func TestWhoIsAskedWhetherItsKernelGoesOn(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(b *bereft)
		want   bool
	}{
		"who had an address": {func(*bereft) {}, true},
		"who had none":       {func(b *bereft) { b.previous[vip4] = "c" }, false},
		"who is on no common network": {func(b *bereft) {
			b.table.Peers["b"] = hello.Peer{Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.2")}}
		}, false},
		"who has no address any more":  {func(b *bereft) { delete(b.table.Peers, "b") }, false},
		"nobody, with no network left": {func(b *bereft) { b.reach = reach{} }, false},
	} {
		b := bereaved()
		tt.change(b)
		if b.update(noon, "b"); b.goOn("b") != tt.want {
			t.Errorf("%s: %t, want %t", what, !tt.want, tt.want)
		}
	}
}
