package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "pulse.sock")
}

// patience is more than what does happen takes on a busy machine.
const patience = time.Minute

func runClient(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the client ended with %v", err)
		}
	})
}

func listened(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// end is pulse's end of a connection.
type end struct {
	net.Conn

	in     *json.Decoder
	tables reader
	told   api.State
}

// accepted waits for the client's next connection.
func accepted(t *testing.T, l net.Listener) *end {
	t.Helper()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &end{Conn: conn, in: decoder(conn), tables: reader{orders: new(orders)}}
}

func (e *end) received(t *testing.T) (api.Table, uint64) {
	t.Helper()
	var m tableMessage
	if err := e.in.Decode(&m); err != nil {
		t.Fatal(err)
	}
	table, err := e.tables.read(m)
	if err != nil {
		t.Fatal(err)
	}
	return table, m.Number
}

func (e *end) tell(t *testing.T, number uint64, s api.State) {
	t.Helper()
	if err := write(e, stateChange(number, &e.told, &s)); err != nil {
		t.Fatal(err)
	}
	e.told = s
}

func connected(t *testing.T, c *Client, want bool) api.State {
	t.Helper()
	for deadline := time.After(patience); ; {
		s, got := c.State()
		if got == want {
			return s
		}
		select {
		case <-c.Changed():
		case <-deadline:
			t.Fatalf("connected is %t, want %t", got, want)
		}
	}
}

func TestATableGivenWhilePulseIsAwayIsHandedOverLater(t *testing.T) {
	path := socketPath(t)
	c := NewClient(path, testlog.New(t))
	c.within = patience
	runClient(t, c)
	if _, err := c.Apply(t.Context(), api.Table{Node: "a"}); !errors.Is(err, ErrAway) {
		t.Fatalf("error %v, want ErrAway", err)
	}
	if _, err := c.Apply(t.Context(), sample()); !errors.Is(err, ErrAway) {
		t.Fatalf("error %v, want ErrAway", err)
	}
	l := listened(t, path)
	for range 2 { // pulse restarts, and gets it again
		conn := accepted(t, l)
		table, number := conn.received(t)
		if diff := cmp.Diff(sample(), table, byValue); diff != "" {
			t.Fatalf("got (-want +got):\n%s", diff)
		}
		conn.tell(t, number, api.State{Settled: true})
		if s := connected(t, c, true); !s.Settled {
			t.Errorf("state %+v", s)
		}
		if _, err := c.Apply(t.Context(), sample()); err != nil {
			t.Errorf("the same table again: %v", err)
		}
		_ = conn.Close()
		if s := connected(t, c, false); s.Settled {
			t.Errorf("state %+v while pulse is away", s)
		}
	}
}

func TestApplyWaitsForItsOwnTable(t *testing.T) {
	path := socketPath(t)
	l := listened(t, path)
	c := NewClient(path, testlog.New(t))
	c.within = patience
	runClient(t, c)
	conn := accepted(t, l)
	conn.tell(t, 0, api.State{})
	connected(t, c, true)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Apply(ctx, sample()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v of a pulse that says nothing", err)
	}
	_, number := conn.received(t)

	type result struct {
		state api.State
		err   error
	}
	results := make(chan result)
	newer := sample()
	newer.Leaving = false
	go func() {
		s, err := c.Apply(t.Context(), newer)
		results <- result{s, err}
	}()
	if _, next := conn.received(t); next <= number {
		t.Fatalf("table %d came after table %d", next, number)
	}
	conn.tell(t, number, api.State{Alive: []string{"old"}})
	conn.tell(t, number+1, api.State{Alive: []string{"new"}})
	if r := <-results; r.err != nil || len(r.state.Alive) != 1 || r.state.Alive[0] != "new" {
		t.Errorf("state %+v, error %v", r.state, r.err)
	}
}

// A pulse that hangs costs the agent a bounded time, and it is told why.
func TestApplyGivesUpOnAHangingPulse(t *testing.T) {
	path := socketPath(t)
	l := listened(t, path)
	c := NewClient(path, testlog.New(t))
	runClient(t, c)
	accepted(t, l).tell(t, 0, api.State{})
	connected(t, c, true)
	begun := time.Now()
	_, err := c.Apply(t.Context(), sample())
	if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), "did not answer within 2s") || took > patience/2 {
		t.Errorf("error %v after %v", err, took)
	}
}

// TestAnOfferWaitsForAMoment: once, for a pulse that hangs, which is an error after a while and until it has caught up.
func TestAnOfferWaitsForAMoment(t *testing.T) {
	path := socketPath(t)
	l := listened(t, path)
	c := NewClient(path, testlog.New(t))
	c.within = time.Second
	if err := c.Offer(t.Context(), api.Table{Node: "a"}); !errors.Is(err, ErrAway) {
		t.Errorf("error %v, want ErrAway", err)
	}
	runClient(t, c)
	conn := accepted(t, l)
	conn.tell(t, 1, api.State{})
	connected(t, c, true)
	var offers []api.Table
	for range 20 {
		next := sample()
		next.Node = fmt.Sprint(len(offers))
		offers = append(offers, next)
	}
	begun := time.Now()
	for i, table := range offers {
		if err := c.Offer(t.Context(), table); err != nil && time.Since(begun) < c.within {
			t.Errorf("offer %d: %v", i, err)
		}
	}
	if took := time.Since(begun); took < offerWithin || took >= offerWithin*time.Duration(len(offers)) {
		t.Errorf("%d offers took %v, want one wait of %v", len(offers), took, offerWithin)
	}
	time.Sleep(c.within)
	last := offers[len(offers)-1]
	if err := c.Offer(t.Context(), last); err == nil || !strings.Contains(err.Error(), "has not answered for more than 1s") {
		t.Errorf("error %v of a pulse that hangs", err)
	}
	conn.tell(t, uint64(1+len(offers)), api.State{})
	if _, err := c.Apply(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := c.Offer(t.Context(), last); err != nil {
		t.Errorf("error %v of a pulse that has caught up", err)
	}
}

// TestAnAgentThatCannotApplyAChangeBeginsAgain with another connection, over which both sides tell all.
func TestAnAgentThatCannotApplyAChangeBeginsAgain(t *testing.T) {
	path := socketPath(t)
	l := listened(t, path)
	c := NewClient(path, testlog.New(t))
	if _, err := c.Apply(t.Context(), sample()); !errors.Is(err, ErrAway) {
		t.Fatalf("error %v, want ErrAway", err)
	}
	runClient(t, c)
	for _, wrong := range []string{`{"Owned":{"Gone":["192.0.2.1"]}}`, `HTTP/1.1 400 Bad Request`} {
		conn := accepted(t, l)
		conn.tell(t, 0, api.State{Settled: true})
		connected(t, c, true)
		if _, err := conn.Write([]byte(wrong)); err != nil {
			t.Fatal(err)
		}
		connected(t, c, false)
	}
	conn := accepted(t, l)
	if table, _ := conn.received(t); !cmp.Equal(table, sample(), byValue) {
		t.Errorf("got %+v", table)
	}
	conn.tell(t, 0, api.State{Alive: []string{"a"}})
	if s := connected(t, c, true); len(s.Alive) != 1 || s.Settled {
		t.Errorf("state %+v", s)
	}
}

// served serves a socket, and returns what comes.
func served(t *testing.T, path string) <-chan Event {
	t.Helper()
	l := listened(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	events, over := make(chan Event), make(chan struct{})
	go func() { defer close(over); Serve(ctx, l, events, testlog.New(t)) }()
	t.Cleanup(func() { cancel(); <-over })
	return events
}

// TestAPulseThatCannotApplyAChangeEndsTheConnection and says why; one that the agent ends is no error.
func TestAPulseThatCannotApplyAChangeEndsTheConnection(t *testing.T) {
	path := socketPath(t)
	events := served(t, path)
	for said, wrong := range map[string]string{
		"":                                  "",
		`{"Number":1`:                       "",
		`{"Claims":{"Gone":["192.0.2.1"]}}`: "names no node",
		"FL\x00\x01":                        "run the same image",
	} {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		first := <-events
		if _, err := conn.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		if wrong == "" {
			_ = conn.Close()
		}
		last := <-events
		if first.Ended || first.Table != nil || !last.Ended || last.From != first.From || (last.Err != nil) != (wrong != "") || wrong != "" && !strings.Contains(last.Err.Error(), wrong) {
			t.Errorf("%q: %+v, then %+v", said, first, last)
		}
		_ = conn.Close()
	}
}

// TestBothSidesHaveTheWhole: whatever tables an agent applies, pulse gets each, and the agent what pulse made of it,
// however often the connection breaks in between.
func TestBothSidesHaveTheWhole(t *testing.T) {
	path := socketPath(t)
	events := served(t, path)
	c := NewClient(path, testlog.New(t))
	c.within = patience
	runClient(t, c)
	var agent atomic.Pointer[Agent]
	var has atomic.Pointer[api.Table]
	go func() {
		for {
			var e Event
			select {
			case e = <-events:
			case <-t.Context().Done():
				return
			}
			switch {
			case e.Ended:
			case e.Table == nil:
				agent.Store(e.From)
				e.From.Tell(0, &api.State{})
			default:
				has.Store(e.Table)
				state := &api.State{Owned: map[netip.Addr]api.Ownership{}, Alive: []string{"n"}}
				for a, claim := range e.Table.Claims {
					state.Owned[a] = api.Ownership{Interfaces: claim.Interfaces}
				}
				e.From.Tell(e.Number, state)
			}
		}
	}()
	connected(t, c, true)
	rapid.Check(t, func(r *rapid.T) {
		if rapid.IntRange(0, 9).Draw(r, "breaks") == 0 {
			agent.Load().Close()
			connected(t, c, false)
			connected(t, c, true)
		}
		table := drawTable(r, rapid.SliceOfN(rapid.Custom(drawTiers), 1, 3).Draw(r, "tiers"))
		state, err := c.Apply(t.Context(), table)
		if diff := cmp.Diff(&table, has.Load(), byValue); diff != "" || err != nil {
			r.Fatalf("error %v, pulse has (-want +got):\n%s", err, diff)
		}
		if len(state.Owned) != len(table.Claims) || len(state.Alive) != 1 {
			r.Fatalf("the agent has %+v of %+v", state, table)
		}
	})
}

// TestATableOfAnySizeGoesOver: each of its addresses has thousands of candidates, in an order of its own.
func TestATableOfAnySizeGoesOver(t *testing.T) {
	const addresses, step = 1_500, 3
	names := slices.Sorted(maps.Keys(large(addresses*step, 0).Peers))
	table := api.Table{Node: names[0], Claims: map[netip.Addr]desired.Candidacy{}}
	for a := range large(1, addresses).Claims {
		i := step * len(table.Claims)
		table.Claims[a] = desired.Candidacy{Candidates: slices.Concat(names[i:], names[:i])}
	}
	path := socketPath(t)
	events := served(t, path)
	c := NewClient(path, testlog.New(t))
	if _, err := c.Apply(t.Context(), table); !errors.Is(err, ErrAway) {
		t.Fatalf("error %v, want ErrAway", err)
	}
	runClient(t, c)
	<-events
	e := <-events
	if e.Table == nil || !differenceOf(&table, e.Table).none() {
		t.Errorf("error %v, or it is another one", e.Err)
	}
}

// A socket left behind by a killed process is no obstacle, and one in use
// changes hands.
func TestListenReplacesASocket(t *testing.T) {
	path := socketPath(t)
	for range 3 {
		l := listened(t, path)
		accepting := make(chan error)
		go func() { _, err := l.Accept(); accepting <- err }()
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if err := <-accepting; err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("socket %v, error %v", info.Mode(), err)
		}
	}
}
