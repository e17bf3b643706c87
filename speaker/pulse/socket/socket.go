// Package socket carries tables from the agent to pulse, and states back, over a unix socket.
//
// Messages are JSON, one after another. On a connection the first table and the first state are whole; each of the later
// ones tells only what has changed since, and its receiver keeps the whole. A receiver that cannot apply a
// change closes the connection, and the next one begins with all. Both ends are of one release, since they run from one
// image in one pod: a field that one does not know is an error.
package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

const (
	// writeWithin bounds how long the other side may leave a message unread.
	writeWithin = 5 * time.Second
	// retryAfter is the pause after a connection that could not be accepted.
	retryAfter = time.Second
)

// Event is what comes over a connection: first that it is there, then tables, at last that it has ended.
type Event struct {
	From   *Agent
	Table  *api.Table // nil: the connection begins or ends
	Number uint64     // of the table, for the states that follow from it
	Ended  bool
	Err    error // the agent said what no table can be made of; nil: it has ended the connection
}

// Agent is a connection that an agent opened. A zero one leads nowhere.
type Agent struct {
	conn   net.Conn
	latest atomic.Pointer[told]
	news   chan struct{} // latest has another one
}

// told is a state, and the number of the table that it follows from.
type told struct {
	number uint64
	state  *api.State
}

// Tell has the agent told a state, unless that is what it was told last. It does not wait: a state that is not on its way
// yet gives way to a newer one. The caller does not change the state afterwards.
func (a *Agent) Tell(number uint64, s *api.State) {
	a.latest.Store(&told{number, s})
	signal.Send(a.news)
}

// Close ends the connection. It may be called more than once.
func (a *Agent) Close() { _ = a.conn.Close() }

// Listen opens the socket, for this user only. It gets its name last, so that no process meets it with other rights,
// and that a stale one of an earlier process is replaced. The error names the path.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	unnamed := path + ".new"
	if err := os.Remove(unnamed); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: unnamed, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	listener.SetUnlinkOnClose(false) // the name may be the next process's by then
	err = os.Chmod(unnamed, 0o600)
	if err == nil {
		err = os.Rename(unnamed, path)
	}
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return listener, nil
}

// Serve takes connections until ctx ends, and closes them and the listener then.
func Serve(ctx context.Context, listener net.Listener, events chan<- Event, log *slog.Logger) {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var connections sync.WaitGroup
	defer connections.Wait()
	var known orders
	complaint := ""
	for {
		conn, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, say: it passes, or the probe finds out
			if complaint != err.Error() {
				complaint = err.Error()
				log.Error("cannot accept the agent's connection; trying again", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
			continue
		}
		a := &Agent{conn: conn, news: make(chan struct{}, 1)}
		connections.Go(func() { a.serve(ctx, &known, events) })
	}
}

// serve reads tables and writes states until either ends the connection.
func (a *Agent) serve(ctx context.Context, known *orders, events chan<- Event) {
	ctx, end := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, a.Close)()
	send := func(e Event) {
		e.From = a
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}
	send(Event{})
	var writer sync.WaitGroup
	writer.Go(func() {
		if a.write(ctx) != nil {
			a.Close() // and the reader finds out
		}
	})
	err := a.read(known, send)
	a.Close()
	send(Event{Ended: true, Err: err})
	end()
	writer.Wait()
}

// read hands on the tables that come. It returns an error for what is no message, or cannot be applied.
func (a *Agent) read(known *orders, send func(Event)) error {
	tables, in := reader{orders: known}, decoder(a.conn)
	for {
		var m tableMessage
		err := in.Decode(&m)
		if isOver(err) {
			return nil
		}
		var table api.Table
		if err == nil {
			table, err = tables.read(m)
		}
		if err != nil {
			return notUnderstood("a table", err)
		}
		send(Event{Table: &table, Number: m.Number})
	}
}

// write tells each state that differs from the last. It returns an error if the agent does not read.
func (a *Agent) write(ctx context.Context) error {
	last := told{state: &api.State{}}
	for first := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-a.news:
		}
		now := a.latest.Load()
		m := stateChange(now.number, last.state, now.state)
		if !first && m.none() && now.number == last.number {
			continue
		}
		if err := write(a.conn, m); err != nil {
			return err
		}
		first, last = false, *now
	}
}

func decoder(conn io.Reader) *json.Decoder {
	in := json.NewDecoder(conn)
	in.DisallowUnknownFields()
	return in
}

// isOver reports whether an error of a decoder says that the other side, or this one, has ended the connection.
func isOver(err error) bool {
	var broken *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken)
}

func notUnderstood(what string, err error) error {
	return fmt.Errorf("%s cannot be understood (run the same image in the containers speaker and pulse): %w", what, err)
}

// write returns an error if the other side stops reading.
func write(conn net.Conn, message any) error { return json.NewEncoder(inPieces{conn}).Encode(message) }

// inPieces writes a long message piece by piece: as long as the other side goes on reading, it may take its time.
type inPieces struct{ net.Conn }

// Write is of io.Writer.
func (p inPieces) Write(b []byte) (n int, err error) {
	const piece = 1 << 16
	for n < len(b) && err == nil {
		var wrote int
		if err = p.SetWriteDeadline(time.Now().Add(writeWithin)); err == nil {
			wrote, err = p.Conn.Write(b[n:min(len(b), n+piece)])
		}
		n += wrote
	}
	return n, err
}
