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

// lonely is a world in which a has never heard b, which Kubernetes calls ready.
type lonely struct {
	unheardNodes
	view    hello.View
	table   *api.Table
	reach   reach
	at      netip.Addr // of b
	on      links.Link
	gateway []links.Gateway
}

func alone() *lonely {
	l := &lonely{at: netip.MustParseAddr("192.0.2.2"), on: linkstest.Ethernet(2, true)}
	l.on.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}
	l.table = &api.Table{Node: "a", Peers: map[string]hello.Peer{"b": {Addrs: []netip.Addr{l.at}, Ready: true}}}
	l.view = hello.View{Settled: true, Alive: map[string]hello.Member{"a": {Heard: true}, "b": {Serving: true}}}
	l.reach = reach{vip4: {l.on}}
	l.gateway = []links.Gateway{{Address: gatewayAddress, Link: l.on.Index}}
	return l
}

func (l *lonely) update(now time.Time) {
	l.unheardNodes.update(now, l.view, l.table, l.reach, l.gateway)
}

// pass lets time pass from noon until then, in which those answer whom answers names. It returns for how long
// since noon b counted as dead and when it was asked.
func (l *lonely) pass(until time.Duration, answers func(since time.Duration, a netip.Addr) bool) (dead, asked []time.Duration) {
	l.update(noon)
	for now := l.next(); !now.IsZero() && now.Before(noon.Add(until)); now = l.next() {
		was := l.dead()
		ask, _ := l.due(now)
		l.update(now)
		for _, w := range ask {
			if w.address == l.at {
				asked = append(asked, now.Sub(noon))
			}
			if answers(now.Sub(noon), w.address) {
				l.claimed(now, neighbour.Claim{Address: w.address, Station: colleague, Index: w.link, Reply: true})
				l.update(now)
			}
		}
		if !slices.Equal(was, l.dead()) {
			dead = append(dead, now.Sub(noon))
		}
	}
	return dead, asked
}

func nobody(time.Duration, netip.Addr) bool { return false }

func theGateway(_ time.Duration, a netip.Addr) bool { return a == gatewayAddress }

func everybody(time.Duration, netip.Addr) bool { return true }

func theSecondTime(since time.Duration, a netip.Addr) bool { return since > 0 || a == gatewayAddress }

// TestWhoIsMissed: a node is dead whose kernel does not answer, if the network is known to hear this one.
func TestWhoIsMissed(t *testing.T) {
	const verdict = absentQuestions * absentEvery
	for what, tt := range map[string]struct {
		change  func(l *lonely)
		answers func(since time.Duration, a netip.Addr) bool
		dead    []time.Duration // from when on, until when
		asked   int             // in 20 s; -1: for as long as it is dead
	}{
		"the gateway answers":            {answers: theGateway, dead: []time.Duration{verdict}, asked: -1},
		"another node is heard":          {change: func(l *lonely) { l.view.Alive["c"] = hello.Member{Heard: true} }, answers: nobody, dead: []time.Duration{verdict}, asked: -1},
		"nothing answers":                {answers: nobody, asked: 2 * absentQuestions},
		"its kernel answers":             {answers: everybody, asked: 1},
		"a question is lost":             {answers: theSecondTime, asked: 2},
		"others say that it died":        {change: func(l *lonely) { delete(l.view.Alive, "b") }, answers: theGateway},
		"it was heard and fell silent":   {change: func(l *lonely) { delete(l.view.Alive, "b"); l.view.Silent = []string{"b"} }, answers: theGateway},
		"others hear it":                 {change: func(l *lonely) { l.view.Apart = []string{"b"} }, answers: theGateway},
		"it is heard":                    {change: func(l *lonely) { l.view.Alive["b"] = hello.Member{Heard: true} }, answers: theGateway},
		"Kubernetes does not call it so": {change: func(l *lonely) { l.table.Peers["b"] = hello.Peer{Addrs: []netip.Addr{l.at}} }, answers: theGateway},
		"it is on another network": {change: func(l *lonely) {
			l.table.Peers["b"] = hello.Peer{Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.2")}, Ready: true}
		}, answers: theGateway},
		"this node has just begun itself": {change: func(l *lonely) { l.view.Settled = false }, answers: theGateway},
	} {
		l := alone()
		if tt.change != nil {
			tt.change(l)
		}
		dead, asked := l.pass(20*time.Second, tt.answers)
		if !slices.Equal(dead, tt.dead) || tt.asked >= 0 && len(asked) != tt.asked {
			t.Errorf("%s: dead from %v on, asked at %v; want %v and %d times", what, dead, asked, tt.dead, tt.asked)
		}
	}
}

// TestAMachineThatBootsIsNotBelieved at once because its kernel answers.
func TestAMachineThatBootsIsNotBelieved(t *testing.T) {
	const boots = 10 * time.Second
	booting := func(since time.Duration, a netip.Addr) bool { return a == gatewayAddress || since >= boots }
	l := alone()
	if dead, _ := l.pass(boots+presentAfter/2, booting); len(dead) != 1 {
		t.Errorf("it counted as dead at first, and then otherwise, from %v on", dead)
	}
	if dead, _ := alone().pass(2*presentAfter, booting); len(dead) != 2 || dead[1] != boots+presentAfter {
		t.Errorf("dead and alive from %v on, want it to be believed after %v of answers", dead, presentAfter)
	}
	// Kubernetes notices, and the speaker begins there.
	l.table.Peers["b"] = hello.Peer{Addrs: []netip.Addr{l.at}}
	if l.update(noon.Add(boots + presentAfter/2)); len(l.dead()) > 0 {
		t.Error("it counts as dead for another reason than Kubernetes'")
	}
	l.table.Peers["b"] = hello.Peer{Addrs: []netip.Addr{l.at}, Ready: true}
	if l.update(noon.Add(presentAfter)); len(l.dead()) > 0 {
		t.Error("it counts as dead before it was asked")
	}
}

// TestFewAreAskedAtATime, lest all nodes ask for all others at once where no hello gets through.
func TestFewAreAskedAtATime(t *testing.T) {
	l := alone()
	for _, elsewhere := range []string{"A", "B", "C", "D", "E", "F", "G", "H"} { // who cannot be asked
		l.table.Peers[elsewhere] = hello.Peer{Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.2")}, Ready: true}
		l.view.Alive[elsewhere] = hello.Member{Serving: true}
	}
	for i := range 30 {
		node := string(rune('c' + i))
		l.table.Peers[node] = hello.Peer{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(3 + i)})}, Ready: true}
		l.view.Alive[node] = hello.Member{Serving: true}
	}
	l.update(noon)
	asked := map[netip.Addr]bool{}
	for range 5 {
		ask, _ := l.due(noon)
		if len(ask) > maxWitnesses+len(l.gateway) {
			t.Fatalf("%d are asked for at a time", len(ask))
		}
		for _, w := range ask {
			asked[w.address] = true
			l.claimed(noon, neighbour.Claim{Address: w.address, Station: colleague, Index: w.link, Reply: true})
		}
		l.update(noon)
	}
	if len(asked) != 31+len(l.gateway) || !l.next().IsZero() {
		t.Errorf("%d were asked for, next at %v", len(asked), l.next())
	}
}
