package pulse

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/wake"
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
)

// Client is the agent's side: it hands tables to pulse and learns what is true.
// Its methods may be called by several goroutines.
type Client struct {
	socket  string
	log     *slog.Logger
	changed chan struct{}
	wake    chan struct{} // a new table is to be sent
	within  time.Duration // bounds each Apply

	mu        sync.Mutex
	table     []byte // encoded; nil: none yet
	number    uint64 // of the table
	connected bool   // pulse has told its state
	state     State
	applied   uint64        // number of the table that the state follows from
	news      chan struct{} // closed and replaced when one of the last three changes
}

// NewClient makes a client of the pulse that listens on the socket.
func NewClient(socket string, log *slog.Logger) *Client {
	return &Client{
		socket: socket, log: log,
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), news: make(chan struct{}), within: applyWithin,
	}
}

// Apply hands over a whole table and waits until pulse has put it into effect;
// the state that it returns follows from this table or a newer one. If pulse is
// away it returns ErrAway at once, and it waits for two seconds at most. In any
// case the table is kept and handed over again whenever pulse comes back, so
// that there is no need to call Apply again with the same one.
func (c *Client) Apply(ctx context.Context, t Table) (State, error) {
	encoded, err := encodeTable(t)
	if err != nil {
		return State{}, fmt.Errorf("encode the table for pulse: %w", err)
	}
	if len(encoded) > maxTable {
		return State{}, fmt.Errorf("the table for pulse has %d bytes, at most %d are allowed: "+
			"%d addresses are claimed on this node; claim fewer", len(encoded), maxTable, len(t.Claims))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.within, fmt.Errorf("pulse did not answer within %v", c.within))
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !bytes.Equal(encoded, c.table) {
		c.table = encoded
		c.number++
		wake.Fill(c.wake)
	}
	for number := c.number; ; {
		switch {
		case !c.connected:
			return State{}, ErrAway
		case c.applied >= number:
			return c.state, nil
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
func (c *Client) State() (State, bool) {
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
	wake.Fill(c.wake) // pulse has to hear the table, whether it is new or not
	var writer sync.WaitGroup
	writer.Go(func() { end(c.write(ctx, conn)) })
	defer func() {
		end(nil)
		stop()
		_ = conn.Close()
		writer.Wait()
		c.learn(State{}, 0, false)
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
			greeted()
		}
		c.learn(state, number, true)
	}
}

// write sends the newest table whenever there is one.
func (c *Client) write(ctx context.Context, conn net.Conn) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		c.mu.Lock()
		table, number := c.table, c.number
		c.mu.Unlock()
		if table == nil {
			continue
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

// learn takes over what pulse told.
func (c *Client) learn(s State, number uint64, connected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := c.connected == connected && c.state.Equal(s)
	c.state, c.applied, c.connected = s, number, connected
	close(c.news)
	c.news = make(chan struct{})
	if !same {
		wake.Fill(c.changed)
	}
}
