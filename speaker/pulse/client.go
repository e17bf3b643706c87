package pulse

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// ErrAway says that pulse cannot be reached now. The table is not lost: it is
// handed over as soon as pulse is back, and Changed tells.
var ErrAway = errors.New("pulse is away; it gets the table when it is back")

const (
	// reconnectAfter is the pause between attempts to reach pulse. A pulse that
	// restarted answers for nothing until it has its table again.
	reconnectAfter = 100 * time.Millisecond
	// applyWithin bounds how long an Apply waits for pulse.
	applyWithin = 2 * time.Second
	// greetWithin is how long it is waited for what pulse says first, which is what it can read.
	greetWithin = time.Second
)

// Client is the agent's side: it hands tables to pulse and learns what is true.
// Its methods may be called by several goroutines.
type Client struct {
	socket  string
	log     *slog.Logger
	changed chan struct{}
	wake    chan struct{} // a new table is to be sent
	within  time.Duration // bounds each Apply
	toGreet time.Duration // how long it is waited for what pulse says first
	former  reader        // for a pulse that reads no tiers

	mu        sync.Mutex
	table     []byte                           // encoded, with tiers; nil: none yet
	number    uint64                           // of the table
	claims    map[netip.Addr]desired.Candidacy // of the table
	tiers     bool                             // pulse reads these
	refused   refusal
	connected bool // pulse has told its state
	state     api.State
	applied   uint64        // number of the table that the state follows from
	news      chan struct{} // closed and replaced when one of the last three changes
}

// NewClient makes a client of the pulse that listens on the socket.
func NewClient(socket string, log *slog.Logger) *Client {
	return &Client{
		socket: socket, log: log,
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), news: make(chan struct{}), within: applyWithin, toGreet: greetWithin,
	}
}

// Apply hands over a whole table and waits until pulse has put it into effect;
// the state that it returns follows from this table or a newer one. If pulse is
// away it returns ErrAway at once, and it waits for two seconds at most. In any
// case the table is kept and handed over again whenever pulse comes back, so
// that there is no need to call Apply again with the same one. One that is too large goes
// without what is new of its claims, so that nodes, the key and what is withdrawn get to pulse
// nevertheless; the error is a *outcome.OversizeError.
func (c *Client) Apply(ctx context.Context, t api.Table) (api.State, error) {
	encoded, err := encode(t, true)
	if err != nil {
		return api.State{}, fmt.Errorf("encode the table for pulse: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.within, fmt.Errorf("pulse did not answer within %v", c.within))
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	var left error
	if len(encoded) > maxTable {
		left = tooLarge(len(encoded), len(t.Claims))
		t.Claims = c.known(t.Claims)
		if encoded, err = encode(t, true); c.table == nil || err != nil || len(encoded) > maxTable {
			return api.State{}, errors.Join(left, err) // pulse goes on with what it was told last, be it by an agent before
		}
	}
	if !bytes.Equal(encoded, c.table) {
		c.table, c.claims = encoded, maps.Clone(t.Claims)
		c.number++
		signal.Send(c.wake)
	}
	state, err := c.await(ctx)
	if left != nil { // which is worse than a pulse that is away
		err = left
	}
	return state, err
}

// known are of the claims those that the last table had, as it had them.
func (c *Client) known(claims map[netip.Addr]desired.Candidacy) map[netip.Addr]desired.Candidacy {
	known := maps.Clone(c.claims)
	maps.DeleteFunc(known, func(a netip.Addr, _ desired.Candidacy) bool { _, still := claims[a]; return !still })
	return known
}

func tooLarge(size, claims int) error {
	return &outcome.OversizeError{Err: fmt.Errorf("the table for pulse has %d bytes, at most %d are allowed: "+
		"%d addresses are claimed on this node, and those that are new or have other candidates are left out; claim fewer", size, maxTable, claims)}
}

// refusal is a table that could not be sent.
type refusal struct {
	number uint64 // of the table; 0: none
	err    error
}

// await waits until pulse has put the newest table into effect.
func (c *Client) await(ctx context.Context) (api.State, error) {
	for number := c.number; ; {
		switch {
		case !c.connected:
			return api.State{}, ErrAway
		case c.applied >= number:
			return c.state, nil
		case c.refused.number >= number:
			return c.state, c.refused.err
		}
		news, state := c.news, c.state
		c.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil && c.applied < number {
			return state, context.Cause(ctx)
		}
	}
}

// State is what pulse told last; false while pulse is away, when nothing is
// answered for.
func (c *Client) State() (api.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.connected
}

// Changed receives after the state changed, or pulse came or went; several
// changes may come as one. It is for one receiver.
func (c *Client) Changed() <-chan struct{} { return c.changed }

// Run keeps the connection until the context ends, and returns nil then. It
// tells once why pulse cannot be reached.
func (c *Client) Run(ctx context.Context) error {
	told := ""
	for {
		err := c.connect(ctx, func() {
			told = ""
			c.log.Info("connected to pulse", "socket", c.socket)
		})
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != told {
			told = err.Error()
			c.log.Warn("pulse cannot be reached; trying again", "socket", c.socket, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnectAfter):
		}
	}
}

// connect holds one connection as long as it lasts.
func (c *Client) connect(ctx context.Context, greeted func()) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	greeting := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { end(c.write(ctx, conn, greeting)) })
	defer func() {
		end(nil)
		stop()
		_ = conn.Close()
		writer.Wait()
		c.learn(api.State{}, 0, false)
	}()
	for first := true; ; first = false {
		body, err := readMessage(conn)
		if err != nil {
			return fmt.Errorf("connection to pulse: %w", cmp.Or(context.Cause(ctx), err))
		}
		state, number, err := decodeStateMessage(body)
		if err != nil {
			return err
		}
		if first {
			c.greet(readsTiers(body))
			close(greeting)
			greeted()
		}
		c.learn(state, number, true)
	}
}

// greet takes in what pulse reads.
func (c *Client) greet(tiers bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tiers, c.refused = tiers, refusal{}
	if tiers {
		signal.Send(c.wake) // it may come late, and the table was refused until then
	}
}

// write sends the newest table whenever there is one, first when it is known what pulse can read. One
// that says nothing of that gets what all can, until it does.
func (c *Client) write(ctx context.Context, conn net.Conn, greeting <-chan struct{}) error {
	silence := time.NewTimer(c.toGreet)
	defer silence.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-greeting:
	case <-silence.C:
	}
	signal.Send(c.wake) // pulse has to hear the table, whether it is new or not
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		c.mu.Lock()
		table, number, tiers := c.table, c.number, c.tiers
		c.mu.Unlock()
		if table == nil {
			continue
		}
		if !tiers {
			var err error
			if table, err = c.former.writtenOut(table); err != nil {
				return err
			}
			if len(table) > maxTable {
				c.refuse(number, len(table))
				continue
			}
		}
		body, err := encodeTableMessage(number, table)
		if err != nil {
			return err
		}
		if err := write(conn, body); err != nil {
			return err
		}
	}
}

// refuse notes that a table does not get to a pulse of an older release.
func (c *Client) refuse(number uint64, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tiers { // it greeted while the table was written out, and gets it next
		return
	}
	c.refused = refusal{number, &outcome.OversizeError{Err: fmt.Errorf("the table for pulse has %d bytes, at most %d are allowed: "+
		"the container pulse is of an older release, which needs more of them; run the same image in the containers speaker and pulse", size, maxTable)}}
	close(c.news)
	c.news = make(chan struct{})
}

// learn takes over what pulse told.
func (c *Client) learn(s api.State, number uint64, connected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := c.connected == connected && c.state.Equal(s)
	c.state, c.applied, c.connected = s, number, connected
	c.tiers = c.tiers && connected
	close(c.news)
	c.news = make(chan struct{})
	if !same {
		signal.Send(c.changed)
	}
}
