package pulse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"
)

// writeWithin bounds how long the other side may leave a message unread.
const writeWithin = 5 * time.Second

// agent is a connection that an agent opened.
type agent struct {
	conn   net.Conn
	tables *reader
	// outbox has the newest message that is not yet on its way.
	outbox chan []byte
	// The last thing told, used by the server's goroutine only.
	told   bool
	number uint64
	state  api.State
}

// delivery is a table that came over a connection, or why it cannot be read.
type delivery struct {
	from   *agent
	table  api.Table
	number uint64
	err    error
}

// parting is the end of a connection. An error says that what came was no
// message at all; without one the agent ended it.
type parting struct {
	from *agent
	err  error
}

// listen opens the socket, for nobody but this user. It gets its name last, so
// that nobody ever meets it with other rights, and that a stale one of an
// earlier process is replaced.
func listen(path string) (net.Listener, error) {
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

// accept takes connections until the listener is closed.
func (s *Server) accept(ctx context.Context, listener net.Listener, tasks *sync.WaitGroup) {
	told := ""
	for {
		conn, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, say: it passes, or the probe finds out
			if told != err.Error() {
				told = err.Error()
				s.cfg.Log.Error("cannot accept the agent's connection; trying again", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
			continue
		}
		a := &agent{conn: conn, tables: &s.tables, outbox: make(chan []byte, 1)}
		select {
		case s.arrived <- a:
			tasks.Go(func() { s.converse(ctx, a) })
		case <-ctx.Done():
			a.close()
		}
	}
}

// converse reads tables and writes states until either ends the connection.
func (s *Server) converse(ctx context.Context, a *agent) {
	stop := context.AfterFunc(ctx, a.close)
	defer stop()
	talk, end := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() { a.write(talk) })
	err := a.read(func(d delivery) {
		select {
		case s.received <- d:
		case <-ctx.Done():
		}
	})
	a.close()
	end()
	writer.Wait()
	select {
	case s.parted <- parting{a, err}:
	case <-ctx.Done():
	}
}

// read hands on the tables that come. An error means that what came was no
// message, so that nobody knows where the next one begins.
func (a *agent) read(hand func(delivery)) error {
	for {
		body, err := readMessage(a.conn)
		var broken *net.OpError
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken) {
			return nil
		}
		if err != nil {
			return err
		}
		table, number, err := a.tables.table(body)
		hand(delivery{a, table, number, err})
	}
}

func (a *agent) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case body := <-a.outbox:
			if err := write(a.conn, body); err != nil {
				a.close() // the reader notices
				return
			}
		}
	}
}

// write sends a message unless the other side stops reading.
func write(conn net.Conn, body []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	return writeMessage(conn, body)
}

// tell sends a state if it is news. It does not wait: a message that is still
// in the outbox gives way to the newer one.
func (a *agent) tell(number uint64, s api.State) error {
	if a.told && a.number == number && a.state.Equal(s) {
		return nil
	}
	body, err := encodeStateMessage(number, s)
	if err != nil {
		return err
	}
	a.told, a.number, a.state = true, number, s
	select {
	case <-a.outbox:
	default:
	}
	a.outbox <- body
	return nil
}

// close may be called more than once.
func (a *agent) close() { _ = a.conn.Close() }
