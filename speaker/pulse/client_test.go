package pulse

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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

// accepted waits for the client's next connection.
func accepted(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func received(t *testing.T, conn net.Conn) (api.Table, uint64) {
	t.Helper()
	body, err := readMessage(conn)
	if err != nil {
		t.Fatal(err)
	}
	table, number, err := decodeTableMessage(body)
	if err != nil {
		t.Fatal(err)
	}
	return table, number
}

func tell(t *testing.T, conn net.Conn, number uint64, s api.State) {
	t.Helper()
	body, err := encodeStateMessage(number, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeMessage(conn, body); err != nil {
		t.Fatal(err)
	}
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
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 { // pulse restarts, and gets it again
		conn := accepted(t, l)
		table, number := received(t, conn)
		if table.Node != sample().Node || len(table.Claims) != 2 {
			t.Fatalf("got %+v", table)
		}
		tell(t, conn, number, api.State{Settled: true})
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
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewClient(path, testlog.New(t))
	c.within = patience
	runClient(t, c)
	conn := accepted(t, l)
	tell(t, conn, 0, api.State{})
	connected(t, c, true)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Apply(ctx, sample()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v of a pulse that says nothing", err)
	}
	_, number := received(t, conn)

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
	_, next := received(t, conn)
	for next == number { // a connection may begin with the same table twice
		_, next = received(t, conn)
	}
	if next < number {
		t.Fatalf("table %d came after table %d", next, number)
	}
	tell(t, conn, number, api.State{Alive: []string{"old"}})
	tell(t, conn, next, api.State{Alive: []string{"new"}})
	if r := <-results; r.err != nil || len(r.state.Alive) != 1 || r.state.Alive[0] != "new" {
		t.Errorf("state %+v, error %v", r.state, r.err)
	}
}

// A pulse that hangs costs the agent a bounded time, and it is told why.
func TestApplyGivesUpOnAHangingPulse(t *testing.T) {
	path := socketPath(t)
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewClient(path, testlog.New(t))
	runClient(t, c)
	tell(t, accepted(t, l), 0, api.State{})
	connected(t, c, true)
	begun := time.Now()
	_, err = c.Apply(t.Context(), sample())
	if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), "did not answer within 2s") || took > patience/2 {
		t.Errorf("error %v after %v", err, took)
	}
}

func TestATableThatIsTooLargeIsRefused(t *testing.T) {
	c := NewClient(socketPath(t), testlog.New(t))
	large := sample()
	large.Claims = map[netip.Addr]desired.Candidacy{vip4: {Interfaces: []string{strings.Repeat("x", maxMessage)}}}
	if _, err := c.Apply(t.Context(), large); err == nil || !strings.Contains(err.Error(), strconv.Itoa(maxTable)) {
		t.Errorf("error %v", err)
	}
}

// A socket left behind by a killed process is no obstacle, and one in use
// changes hands.
func TestListenReplacesASocket(t *testing.T) {
	path := socketPath(t)
	for range 3 {
		l, err := listen(path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
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
