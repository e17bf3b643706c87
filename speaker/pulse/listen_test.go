package pulse

import (
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// TestANodeWhoseLinkComesUpListens: to the others, which have taken over, before it takes anything.
func TestANodeWhoseLinkComesUpListens(t *testing.T) {
	for name, c := range map[string]struct {
		back  func(v *hello.View) // after a hello's time
		after time.Duration       // in which it answers
	}{
		"others are there": {func(v *hello.View) {
			*v = serving("a", "b", "c")
			v.Alive["b"] = hello.Member{Serving: true, Heard: true}
		}, 50 * time.Millisecond},
		"only one of them is there": {func(v *hello.View) {
			*v = serving("a", "b")
			v.Alive["b"] = hello.Member{Serving: true, Heard: true}
			v.Silent = []string{"c"}
		}, listenFor},
		"all others are dead":           {func(*hello.View) {}, listenFor},
		"one was heard by another link": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := links.NewSnapshot(linkstest.Ethernet(2, true))
				out := &around{view: serving("a", "b", "c"), links: up}
				for node := range out.view.Alive {
					out.view.Alive[node] = hello.Member{Serving: true, Heard: true}
				}
				s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
				s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: claim(vip4, "a", "b", "c")}, Number: 1})
				s.settle(true)
				if !does(s, vip4) {
					t.Fatal("it does not answer at first")
				}
				out.links, out.view = links.NewSnapshot(linkstest.Ethernet(2, false)), serving("a")
				out.view.Silent = []string{"b", "c"}
				if c.back == nil {
					out.view.Alive["b"], out.view.Silent = hello.Member{Serving: true, Heard: true}, []string{"c"}
				}
				s.settle(true)
				if does(s, vip4) {
					t.Fatal("it answers without a link")
				}
				again := linkstest.Ethernet(2, true)
				again.Ups = 1
				out.links = links.NewSnapshot(again)
				began := time.Now()
				s.settle(true)
				for !does(s, vip4) && time.Since(began) < time.Second {
					time.Sleep(10 * time.Millisecond)
					if c.back != nil && time.Since(began) == 50*time.Millisecond {
						c.back(&out.view)
						s.settle(true)
					}
					s.settle(false)
				}
				if took := time.Since(began); took != c.after {
					t.Errorf("it answers after %v, want %v", took, c.after)
				}
			})
		})
	}
}
