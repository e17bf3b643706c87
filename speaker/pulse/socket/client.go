package socket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/signal"
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
	// offerWithin bounds how long an Offer waits. A pulse that runs answers within some milliseconds.
	offerWithin = 50 * time.Millisecond
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
	table     *api.Table // nil: none yet
	number    uint64     // of the table
	connected bool       // pulse has told its state
	state     api.State
	applied   uint64        // number of the table that the state follows from
	owes      time.Time     // since when pulse owes the next answer, if it does
	news      chan struct{} // closed and replaced when one of the last three changes
}

// NewClient makes a client of the pulse that listens on the socket.
func NewClient(socket string, log *slog.Logger) *Client {
	return &Client{
		socket: socket, log: log,
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), news: make(chan struct{}), within: applyWithin,
	}
}

// Apply hands over a whole table, which the caller does not change afterwards, and waits until pulse has put it into
// effect; the state that it returns follows from this table or a newer one. If pulse is
// away it returns ErrAway at once, and it waits for two seconds at most. In any
// case the table is kept and handed over again whenever pulse comes back, so
// that there is no need to call Apply again with the same one.
func (c *Client) Apply(ctx context.Context, t api.Table) (api.State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.within, fmt.Errorf("pulse did not answer within %v", c.within))
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.take(&t)
	return c.await(ctx)
}

// Offer is Apply for a caller that others wait for. It waits for a moment, and not at all while pulse has had that for an
// earlier table: a pulse that is stopped delays one Offer. Its error is ErrAway, that of ctx, or says that pulse has
// answered nothing for two seconds.
func (c *Client) Offer(ctx context.Context, t api.Table) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.take(&t)
	moment, cancel := context.WithDeadline(ctx, c.owes.Add(offerWithin))
	defer cancel()
	_, err := c.await(moment)
	switch {
	case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		return err
	case time.Since(c.owes) > c.within:
		return fmt.Errorf("pulse has not answered for more than %v", c.within)
	}
	return nil
}

// take keeps a table, to be handed over if it is another one.
func (c *Client) take(t *api.Table) {
	if c.table != nil && differenceOf(c.table, t).none() {
		return
	}
	if c.applied >= c.number {
		c.owes = time.Now()
	}
	c.table = t
	c.number++
	signal.Send(c.wake)
}

// await waits until pulse has put the newest table into effect.
func (c *Client) await(ctx context.Context) (api.State, error) {
	for number := c.number; ; {
		switch {
		case !c.connected:
			return api.State{}, ErrAway
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
	var writer sync.WaitGroup
	writer.Go(func() { end(c.write(ctx, conn)) })
	defer func() {
		end(nil)
		stop()
		_ = conn.Close()
		writer.Wait()
		c.learn(api.State{}, 0, false, true)
	}()
	var state api.State
	in := decoder(conn)
	for first := true; ; first = false {
		var m stateMessage
		err := in.Decode(&m)
		if isOver(err) {
			return fmt.Errorf("connection to pulse: %w", cmp.Or(context.Cause(ctx), err))
		}
		if err == nil {
			state, err = m.after(state)
		}
		if err != nil {
			return notUnderstood("a state of pulse", err)
		}
		if first {
			greeted()
		}
		c.learn(state, m.Number, true, first || !m.none())
	}
}

// write sends the newest table whenever there is one. It returns an error if pulse does not read.
func (c *Client) write(ctx context.Context, conn net.Conn) error {
	var tables writer
	signal.Send(c.wake) // pulse has to hear the table, whether it is new or not
	for sent := uint64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		c.mu.Lock()
		table, number := c.table, c.number
		c.mu.Unlock()
		if number == sent {
			continue
		}
		if err := write(conn, tables.message(number, table)); err != nil {
			return err
		}
		sent = number
	}
}

// learn takes over what pulse told.
func (c *Client) learn(s api.State, number uint64, connected, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNew = isNew && (connected || c.connected)
	if !c.connected || number > c.applied {
		c.owes = time.Now()
	}
	c.state, c.applied, c.connected = s, number, connected
	close(c.news)
	c.news = make(chan struct{})
	if isNew {
		signal.Send(c.changed)
	}
}
