package pulse

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/arp"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// around is what a server has around it; it notes in which order the server does
// what can be seen from outside.
type around struct {
	view  hello.View
	links *links.Snapshot
	did   []string
}

func (a *around) Set(w hello.Wanted) {
	a.did = append(a.did, fmt.Sprintf("says serving=%t leaving=%t unable=%v", w.Serving, w.Leaving, w.Unable))
	self := a.view.Alive["a"]
	self.Serving = w.Serving && !w.Leaving
	a.view.Alive["a"] = self
}

func (a *around) Answer(want map[int][]netip.Addr) {
	a.did = append(a.did, fmt.Sprintf("answers %v", slices.Concat(slices.Collect(maps.Values(want))...)))
}

func (a *around) View() hello.View                       { return a.view }
func (a *around) Snapshot() *links.Snapshot              { return a.links }
func (a *around) Open([]arp.Interface) (m map[int]error) { return m }
func (a *around) Changed() <-chan struct{}               { return nil }
func (a *around) Broken() <-chan struct{}                { return nil }
func (a *around) Goodbye(time.Duration)                  { a.did = append(a.did, "says goodbye") }
func (a *around) Close()                                 { a.did = append(a.did, "answers no more") }

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
	out := &around{view: serving("b"), links: links.NewSnapshot(ethernet(2, true))}
	out.view.Settled = false
	s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: out, Log: testlog.New(t)})
	s.settle()
	out.wants(t, "without a table")

	s.take(delivery{table: Table{Node: "a", Serving: true, Claims: claim(vip4, "a", "b")}, number: 1})
	s.settle()
	out.wants(t, "unsettled", "says serving=false leaving=false unable=[]", "answers []")
	s.settle()
	out.wants(t, "unsettled still", "answers []")

	out.view.Settled = true
	s.settle()
	out.wants(t, "settled", "answers [192.0.2.10]", "says serving=true leaving=false unable=[]")
	if _, owns := s.State().Owned[vip4]; !owns {
		t.Errorf("state %+v", s.State())
	}
	s.settle()
	out.wants(t, "nothing is new", "answers [192.0.2.10]")

	// A node without a key for hellos has to listen anew.
	out.view.Settled = false
	s.settle()
	out.wants(t, "unsettled again", "answers []", "says serving=false leaving=false unable=[]")
}
