package socket

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// full has something in each field.
func full(now time.Time) api.State {
	return api.State{
		Settled: true, Alive: []string{"a", "b"}, Silent: []string{"c"}, Unable: []netip.Addr{vip6},
		CutOff: []netip.Addr{netip.MustParseAddr("fe80::1")}, CutLinks: []string{"eth1"}, Damped: []string{"d"}, Left: map[netip.Addr]string{vip4: "b"},
		Handover: "the kernel lacks NFT_DUP",
		Owned: map[netip.Addr]api.Ownership{
			vip4: {Interfaces: []string{"eth0"}, Since: now, Dead: []string{"c"}, Unable: []string{"d"}, Distant: []string{"e"}, Damped: []string{"g"}, Preferred: []string{"f"}, Next: "b"},
		},
		Contested: map[netip.Addr]api.Contest{
			vip4: {Station: "02:00:00:00:00:07", Interface: "eth0", Since: now},
			vip6: {Station: "02:00:00:00:00:08", Node: "c", Interface: "eth1", Since: now, Withheld: true},
		},
		Doubted: map[netip.Addr]api.Doubt{
			vip4: {Owner: "b", Interface: "eth0", Since: now},
			vip6: {Owner: "b", Node: "c", Station: "02:00:00:00:00:09", Alone: true, Interface: "eth1", Since: now},
		},
		BFD: map[string]bfd.Status{"tor": {
			State: bfd.Down, Diag: bfd.Expired, Since: now, Failures: 2, Detection: time.Second, Trouble: "none left",
		}},
		Adjacent: map[string]view.Adjacency{
			"eth1": {Local: netip.MustParseAddr("fe80::2%eth1"), Router: netip.MustParseAddr("fe80::1%eth1")},
			"eth2": {Trouble: "it is down"},
		},
	}
}

// passState is a state as it gets over the connection after the one before, and what goes over.
func passState(tb testing.TB, sent, had, now api.State) (got api.State, text string) {
	tb.Helper()
	encoded, err := json.Marshal(stateChange(5, &sent, &now))
	if err != nil {
		tb.Fatal(err)
	}
	got, err = takeState(had, string(encoded))
	if err != nil {
		tb.Fatal(err)
	}
	return got, string(encoded)
}

func takeState(had api.State, text string) (api.State, error) {
	var m stateMessage
	if err := decoder(strings.NewReader(text)).Decode(&m); err != nil {
		return had, err
	}
	return m.after(had)
}

func TestWhatGoesBack(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	want := full(since)
	got, _ := passState(t, api.State{}, api.State{}, want)
	if !got.Equal(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	next := want
	next.Owned = map[netip.Addr]api.Ownership{vip6: {Interfaces: []string{"eth0"}, Since: since}}
	got, text := passState(t, want, got, next)
	if text != `{"Number":5,"Owned":{"Set":{"2001:db8::10":{"Interfaces":["eth0"],"Since":"2026-01-01T00:00:00Z"}},"Gone":["192.0.2.10"]}}` || !got.Equal(next) {
		t.Errorf("a change: %s, read as %+v", text, got)
	}
	if got, text := passState(t, next, got, next); text != `{"Number":5}` || !got.Equal(next) {
		t.Errorf("nothing: %s, read as %+v", text, got)
	}
}

// TestChangesMakeTheWholeState: whatever states follow each other.
func TestChangesMakeTheWholeState(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		now := time.Now()
		draw := func() api.State {
			s, all := api.State{Settled: rapid.Bool().Draw(r, "settled")}, full(now.Add(time.Duration(rapid.IntRange(0, 1).Draw(r, "later"))))
			for _, take := range []func(){
				func() { s.Alive = all.Alive },
				func() { s.Silent = all.Silent },
				func() { s.Unable, s.CutOff, s.CutLinks, s.Damped = all.Unable, all.CutOff, all.CutLinks, all.Damped },
				func() { s.Left = all.Left },
				func() { s.Owned = all.Owned },
				func() { s.Contested = all.Contested },
				func() { s.Contested = map[netip.Addr]api.Contest{vip4: all.Contested[vip6]} },
				func() { s.Doubted = all.Doubted },
				func() { s.Doubted = map[netip.Addr]api.Doubt{vip4: all.Doubted[vip6]} },
				func() { s.BFD, s.Adjacent, s.Handover = all.BFD, all.Adjacent, all.Handover },
			} {
				if rapid.Bool().Draw(r, "has") {
					take()
				}
			}
			return s
		}
		var sent, had api.State
		for range rapid.IntRange(1, 6).Draw(r, "states") {
			next := draw()
			before := had
			got, text := passState(t, sent, had, next)
			if !got.Equal(next) || !had.Equal(before) {
				r.Fatalf("got %+v, want %+v, by %s", got, next, text)
			}
			sent, had = next, got
		}
	})
}

func TestStatesThatAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":             `{`,
		"a field of tomorrow":  `{"Colour":"of the sky"}`,
		"another one":          `{"Owned":{"Gone":["192.0.2.1"]}}`,
		"a contest about none": `{"Contested":{"Set":{"":{"Station":"x"}}}}`,
		"a doubt about none":   `{"Doubted":{"Set":{"":{"Owner":"x"}}}}`,
		"none is left":         `{"Left":{"Set":{"":"b"}}}`,
		"another link":         `{"Rest":{"Adjacent":{"eth1":{"Local":"fe80::1%eth2"}}}}`,
		"an address of none":   `{"Rest":{"Adjacent":{"eth1":{"Router":"fe80::1%eth1"}}}}`,
	} {
		if got, err := takeState(api.State{}, text); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func FuzzStates(f *testing.F) {
	_, whole := passState(f, api.State{}, api.State{}, full(time.Now()))
	_, change := passState(f, full(time.Now()), full(time.Now()), api.State{Settled: true})
	f.Add([]byte(whole))
	f.Add([]byte(whole + change))
	f.Add([]byte(`{"Rest":{"Owned":{"::1":{}}}}{"Owned":{"Set":{"::1":{}}}}{"Owned":{"Gone":["::1"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := decoder(bytes.NewReader(data))
		var state, again api.State
		for {
			var m stateMessage
			if in.Decode(&m) != nil {
				return
			}
			next, err := m.after(state)
			if err != nil {
				return
			}
			if again, _ = passState(t, state, again, next); !again.Equal(next) {
				t.Fatalf("read twice: %+v, then %+v", next, again)
			}
			state = next
		}
	})
}

// BenchmarkOneOwnershipOfTenThousand is what it costs that one address more is answered for.
func BenchmarkOneOwnershipOfTenThousand(b *testing.B) {
	var states [2]api.State
	for i := range states {
		states[i] = api.State{Settled: true, Owned: map[netip.Addr]api.Ownership{}}
		for a := range large(1_000, 10_000-i).Claims {
			states[i].Owned[a] = api.Ownership{Interfaces: []string{"eth0"}, Since: time.Unix(1, 0), Next: "worker-0001.example.net"}
		}
		for node := range large(1_000, 0).Peers {
			states[0].Alive = append(states[0].Alive, node)
		}
	}
	states[0].Alive = states[0].Alive[:1_000]
	states[1].Alive = states[0].Alive
	var messages [2]string
	for i := range 2 {
		_, messages[i] = passState(b, states[i], states[i], states[1-i])
	}
	b.Run("pulse", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := json.Marshal(stateChange(1, &states[i%2], &states[1-i%2])); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(messages[0])), "bytes")
		}
	})
	b.Run("agent", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := takeState(states[i%2], messages[i%2]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
