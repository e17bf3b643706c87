package pulse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// around is what a server has around it; it notes in which order the server does
// what can be seen from outside.
type around struct {
	view  hello.View
	links *links.Snapshot
	did   []string

	claims []neighbour.Claim // that other stations make, until they are taken
	told   hello.Wanted      // to the mesh
	every  map[netip.Addr]time.Duration
}

func (a *around) Set(w hello.Wanted) {
	a.told = w
	a.did = append(a.did, fmt.Sprintf("says serving=%t leaving=%t unable=%v", w.Serving, w.Leaving, w.Unable))
	self := a.view.Alive["a"]
	self.Serving = w.Serving && !w.Leaving
	a.view.Alive["a"] = self
}

func (a *around) NextEpoch() uint64         { return 1 }
func (a *around) Advance() uint64           { return 1 }
func (a *around) IsQuiet(string) bool       { return false }
func (a *around) View() hello.View          { return a.view }
func (a *around) Snapshot() *links.Snapshot { return a.links }
func (a *around) Changed() <-chan struct{}  { return nil }
func (a *around) Gateways() []links.Gateway { return nil }
func (a *around) Goodbye(hold time.Duration) {
	if hold == 0 {
		a.did = append(a.did, "says goodbye")
	} else {
		a.did = append(a.did, "counts as alive for "+hold.String())
	}
}

// over is a responder of a protocol.
type over struct {
	*around
	protocol string
}

func (o over) Answer(want, _ map[int][]netip.Addr, every map[netip.Addr]time.Duration) {
	o.every = every
	o.did = append(o.did, fmt.Sprintf("answers %v over %s", slices.Concat(slices.Collect(maps.Values(want))...), o.protocol))
}

func (o over) Claims() (claims []neighbour.Claim) {
	claims, o.claims = o.claims, nil
	return claims
}

func (o over) Open([]neighbour.Interface) (m map[int]error)   { return m }
func (o over) Broken() <-chan struct{}                        { return nil }
func (o over) Claimed() <-chan struct{}                       { return nil }
func (o over) Say(neighbour.Word, int, netip.Addr)            {}
func (o over) Ask(int, netip.Addr, netip.Addr, neighbour.MAC) {}
func (o over) Close()                                         { o.did = append(o.did, "answers no more over "+o.protocol) }

// path is the BFD around the server.
// lone has no router at the other end of any interface.
type lone struct{}

func (lone) Set([]string, *links.Snapshot)     {}
func (lone) Status() map[string]view.Adjacency { return nil }
func (lone) Changed() <-chan struct{}          { return nil }

// onOne has no interface but the one of the mesh.
type onOne struct{}

func (onOne) Set(linkcheck.Wanted)             {}
func (onOne) Status() map[int]linkcheck.Status { return nil }
func (onOne) Changed() <-chan struct{}         { return nil }

type path struct{ *around }

func (p path) Set(_ view.Secret, want map[string]desired.BFD, _ *links.Snapshot) {
	if len(want) > 0 {
		p.did = append(p.did, fmt.Sprintf("holds BFD with %v", slices.Sorted(maps.Keys(want))))
	}
}
func (path) Status() map[string]bfd.Status { return nil }
func (path) Changed() <-chan struct{}      { return nil }
func (p path) Goodbye(_ context.Context, hold time.Duration) error {
	if hold == 0 {
		p.did = append(p.did, "says AdminDown")
	} else {
		p.did = append(p.did, "asks for patience for "+hold.String())
	}
	return nil
}

func (a *around) wants(t *testing.T, when string, want ...string) {
	t.Helper()
	if !slices.Equal(a.did, want) {
		t.Errorf("%s: %q, want %q", when, a.did, want)
	}
	a.did = nil
}

// Those that answered so far stop when they hear that this node serves: so it
// says that once it answers itself, and not with its first table.
func TestServingIsSaidByANodeThatAnswers(t *testing.T) {
	out := &around{view: serving("b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
	out.view.Settled = false
	s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
	s.settle(true)
	out.wants(t, "without a table")

	claims := claim(vip4, "a", "b")
	claims[vip6] = claims[vip4]
	s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: claims}, Number: 1})
	s.settle(true)
	out.wants(t, "unsettled", "says serving=false leaving=false unable=[]", "answers [] over ARP", "answers [] over NDP")
	s.settle(true)
	out.wants(t, "unsettled still", "answers [] over ARP", "answers [] over NDP")

	out.view.Settled = true
	s.settle(true)
	out.wants(t, "settled", "answers [192.0.2.10] over ARP", "answers [2001:db8::10] over NDP", "says serving=true leaving=false unable=[]")
	if _, owns := s.State().Owned[vip4]; !owns {
		t.Errorf("state %+v", s.State())
	}
	s.settle(true)
	out.wants(t, "nothing is new", "answers [192.0.2.10] over ARP", "answers [2001:db8::10] over NDP")

	// A node without a key for hellos has to listen anew.
	out.view.Settled = false
	s.settle(true)
	out.wants(t, "unsettled again", "answers [] over ARP", "answers [] over NDP", "says serving=false leaving=false unable=[]")
}

// refused is a responder that cannot be opened, and that hears what is no news all the time.
type refused struct {
	over

	opened  *int
	claimed chan struct{}
}

func (r refused) Open([]neighbour.Interface) map[int]error {
	*r.opened++
	return map[int]error{2: errors.New("no buffer space available")}
}

func (r refused) Claimed() <-chan struct{} { return r.claimed }

// TestAnInterfaceIsTriedAgainWhateverIsHeard: what comes more often than an interface is tried again, and
// leaves nothing to settle, does not put that off.
func TestAnInterfaceIsTriedAgainWhateverIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &around{view: serving("b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
		opened, claimed := 0, make(chan struct{})
		s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: refused{over{out, "ARP"}, &opened, claimed}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
		s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: claim(vip4, "a", "b")}, Number: 1})
		s.settle(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.loop(ctx)
		}()
		for range 100 {
			claimed <- struct{}{}
			time.Sleep(retryAfter / 10)
		}
		cancel()
		<-done
		if opened < 9 || opened > 15 {
			t.Errorf("opened %d times in ten seconds, want once a second", opened)
		}
	})
}

// TestGoodbye: routers are asked for patience in a restart, and told AdminDown by a
// node that leaves. One whose machine shuts down falls silent and does not say that it leaves.
func TestGoodbye(t *testing.T) {
	for _, test := range []struct {
		leaving, shutsDown bool
		want               []string
	}{
		{false, false, []string{"counts as alive for 10s", "asks for patience for 1m0s", "answers no more over ARP", "answers no more over NDP"}},
		{true, false, []string{"says AdminDown", "answers no more over ARP", "answers no more over NDP", "says goodbye"}},
		{true, true, []string{"says AdminDown", "answers no more over ARP", "answers no more over NDP", "counts as alive for 2s"}},
	} {
		out := &around{view: serving("b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
		s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
		s.take(socket.Event{Table: &api.Table{Node: "a", Leaving: test.leaving, ShutsDown: test.shutsDown, BFD: map[string]desired.BFD{"tor": {}}}, Number: 1})
		s.settle(true)
		if !slices.Contains(out.did, "holds BFD with [tor]") {
			t.Errorf("did %q", out.did)
		}
		out.did = nil
		s.goodbye()
		out.wants(t, fmt.Sprintf("leaving=%t, shuts down: %t", test.leaving, test.shutsDown), test.want...)
	}
}

// TestTheEndWaitsForTheAgent: for its last word, and for a while more if it is that the node leaves, since the
// agent has routers leave its routes then, for which BFD is needed.
func TestTheEndWaitsForTheAgent(t *testing.T) {
	for name, test := range map[string]struct {
		table   api.Table
		gone    bool // the agent ends a second after pulse was asked to
		ends    time.Duration
		without bool // there has never been an agent
	}{
		"a restart":                       {table: api.Table{Node: "a", Serving: true}, ends: lastWord},
		"the agent ends before":           {table: api.Table{Node: "a", Serving: true}, gone: true, ends: lastWord},
		"the node leaves":                 {table: api.Table{Node: "a", Leaving: true}, ends: lastWord + drained},
		"the node leaves, the agent ends": {table: api.Table{Node: "a", Leaving: true}, gone: true, ends: time.Second},
		"there was no agent":              {without: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &around{view: serving("b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
				s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
				if !test.without {
					s.agent = new(socket.Agent)
					s.take(socket.Event{From: s.agent, Table: &test.table, Number: 1})
				}
				from := s.agent
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				began := time.Now()
				if test.gone {
					go func() {
						time.Sleep(time.Second)
						s.received <- socket.Event{From: from, Ended: true}
					}()
				}
				s.loop(ctx)
				if took := time.Since(began); took != test.ends {
					t.Errorf("pulse went on for %v, want %v", took, test.ends)
				}
			})
		})
	}
}

// TestWhatIsAnsweredForIsAnnouncedAgain, at the interval of its claim; but not while it is to be
// handed over, or while it has to be asked for first.
func TestWhatIsAnsweredForIsAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &around{view: serving("a", "b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
		out.view.Alive["b"] = hello.Member{Serving: true, Stations: []hello.Station{hello.Station(colleague)}}
		s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
		fresh := netip.MustParseAddr("192.0.2.20")
		mine, theirs := []string{"a", "b"}, []string{"b", "a"}
		var number uint64
		is := func(when string, claims map[netip.Addr]desired.Candidacy, elsewhere []netip.Addr, want map[netip.Addr]time.Duration) {
			t.Helper()
			number++
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: claims, Elsewhere: elsewhere}, Number: number})
			s.settle(true)
			if !maps.Equal(out.every, want) {
				t.Errorf("%s: announced again every %v, want %v", when, out.every, want)
			}
		}
		both := map[netip.Addr]time.Duration{vip4: time.Minute, vip6: time.Hour}
		is("at first", map[netip.Addr]desired.Candidacy{
			vip4: {Candidates: mine, AnnounceInterval: time.Minute}, vip6: {Candidates: mine, AnnounceInterval: time.Hour},
		}, nil, both)
		is("of the other node, new, and without an interval", map[netip.Addr]desired.Candidacy{
			vip4:                              {Candidates: mine},
			vip6:                              {Candidates: mine, AnnounceInterval: time.Hour},
			fresh:                             {Candidates: mine, AnnounceInterval: time.Second},
			netip.MustParseAddr("192.0.2.21"): {Candidates: theirs, AnnounceInterval: time.Second},
		}, nil, map[netip.Addr]time.Duration{vip6: time.Hour})
		is("the order moves one, and the other has no claim any more", map[netip.Addr]desired.Candidacy{
			vip4: {Candidates: theirs, AnnounceInterval: time.Minute},
		}, []netip.Addr{vip6}, nil)
		if owned := s.State().Owned; len(owned) != 2 {
			t.Errorf("answers for %v, want those that are to be handed over", owned)
		}
		is("both are back", map[netip.Addr]desired.Candidacy{
			vip4: {Candidates: mine, AnnounceInterval: time.Minute}, vip6: {Candidates: mine, AnnounceInterval: time.Hour},
		}, nil, both)
	})
}

// TestANodeHandsOverWhatATableMoves: it answers until it has heard the node that it has to
// hand over to, or for a second; but not where a claim is gone, or where it cannot serve.
func TestANodeHandsOverWhatATableMoves(t *testing.T) {
	mine, theirs := claim(vip4, "a", "b"), claim(vip4, "b", "a")
	const answers, silent = "answers [192.0.2.10] over ARP", "answers [] over ARP"
	begin := func(t *testing.T) (*around, *Server) {
		out := &around{view: serving("a", "b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
		out.view.Alive["b"] = hello.Member{Serving: true, Stations: []hello.Station{hello.Station(colleague)}}
		s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
		s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: mine}, Number: 1})
		s.settle(true)
		if !slices.Contains(out.did, answers) {
			t.Fatalf("did %q", out.did)
		}
		return out, s
	}
	is := func(t *testing.T, out *around, s *Server, when, want string) {
		t.Helper()
		out.did = nil
		s.settle(true)
		if !slices.Contains(out.did, want) {
			t.Errorf("%s: did %q, want %q", when, out.did, want)
		}
	}
	meet := func(t *testing.T, out *around, s *Server) {
		t.Helper()
		reply := says(vip4, colleague)
		out.claims = []neighbour.Claim{reply}
		s.settle(false)
		is(t, out, s, "the other was heard", answers)
		reply.Reply = true
		out.claims = []neighbour.Claim{reply}
		if s.settle(false); does(s, vip4) {
			t.Error("the reply of the other is no news")
		}
		is(t, out, s, "the other has replied", silent)
	}
	for name, test := range map[string]func(t *testing.T, out *around, s *Server){
		"the other is heard": func(t *testing.T, out *around, s *Server) {
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: theirs}, Number: 2})
			is(t, out, s, "moved", answers)
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: theirs}, Number: 3})
			is(t, out, s, "told again", answers)
			probe := says(vip4, colleague)
			probe.Probe = true
			out.claims = []neighbour.Claim{probe, says(vip6, colleague)}
			s.settle(false)
			is(t, out, s, "the other asks", answers)
			meet(t, out, s)
			is(t, out, s, "for good", silent)
			if len(s.State().Contested) > 0 {
				t.Errorf("contested: %v", s.State().Contested)
			}
		},
		"nobody is heard": func(t *testing.T, out *around, s *Server) {
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: theirs}, Number: 2})
			is(t, out, s, "moved", answers)
			<-s.alarm()
			s.settle(false)
			is(t, out, s, "after a second", answers)
			if want := []hello.Claim{{Address: vip4, Stance: hello.Yields, Epoch: 1}}; !slices.Equal(out.told.Claims, want) {
				t.Errorf("the others are told %v, want %v", out.told.Claims, want)
			}
			time.Sleep(time.Hour)
			s.settle(false)
			is(t, out, s, "after an hour", answers)
			other := out.view.Alive["b"]
			other.Claims = []hello.Claim{{Address: vip4, Stance: hello.Answers, Epoch: 2}}
			out.view.Alive["b"] = other
			is(t, out, s, "the other says that it answers", silent)
			other.Claims = nil
			out.view.Alive["b"] = other
			is(t, out, s, "for good", silent)
		},
		"it is no candidate, and the other is heard": func(t *testing.T, out *around, s *Server) {
			drained := api.Table{Node: "a", Serving: true, Elsewhere: []netip.Addr{vip4}}
			s.take(socket.Event{Table: &drained, Number: 2})
			is(t, out, s, "drained", answers)
			s.take(socket.Event{Table: &drained, Number: 3})
			is(t, out, s, "told again", answers)
			meet(t, out, s)
			is(t, out, s, "for good", silent)
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: mine}, Number: 4})
			is(t, out, s, "back", answers)
		},
		"it is no candidate, and nobody is heard": func(t *testing.T, out *around, s *Server) {
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Elsewhere: []netip.Addr{vip4}}, Number: 2})
			is(t, out, s, "drained", answers)
			time.Sleep(time.Hour)
			s.settle(false)
			is(t, out, s, "after an hour", answers)
		},
		"it is no candidate, and the interface that was named is in no network": func(t *testing.T, out *around, s *Server) {
			bare, named := linkstest.Ethernet(2, true), claim(vip4, "a", "b")
			bare.Prefixes = []netip.Prefix{netip.MustParsePrefix("fe80::1/64")}
			named[vip4] = desired.Candidacy{Candidates: named[vip4].Candidates, Interfaces: []string{bare.Name}}
			out.links = links.NewSnapshot(bare)
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: named}, Number: 2})
			is(t, out, s, "named", answers)
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Elsewhere: []netip.Addr{vip4}}, Number: 3})
			is(t, out, s, "drained", answers)
			is(t, out, s, "for long", answers)
			meet(t, out, s)
		},
		"it is no candidate, and the Service goes": func(t *testing.T, out *around, s *Server) {
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Elsewhere: []netip.Addr{vip4}}, Number: 2})
			is(t, out, s, "drained", answers)
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true}, Number: 3})
			is(t, out, s, "gone", silent)
		},
		"it cannot serve it": func(t *testing.T, out *around, s *Server) {
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Unable: []netip.Addr{vip4}}, Number: 2})
			is(t, out, s, "unable", silent)
		},
		"the claim is gone": func(t *testing.T, out *around, s *Server) {
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true}, Number: 2})
			is(t, out, s, "gone", silent)
		},
		"the node leaves": func(t *testing.T, out *around, s *Server) {
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Leaving: true, Claims: theirs}, Number: 2})
			is(t, out, s, "leaving", silent)
		},
		"the other is back": func(t *testing.T, out *around, s *Server) {
			b := out.view.Alive["b"]
			delete(out.view.Alive, "b")
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: theirs}, Number: 2})
			is(t, out, s, "the other is dead", answers)
			out.view.Alive["b"] = b
			is(t, out, s, "it answers already, since it says that it serves", silent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, s := begin(t)
				test(t, out, s)
			})
		})
	}
}
