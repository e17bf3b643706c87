package scenarios

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
)

// holdPace is the time between two requests of holdOpen, holdPatience how long it waits for
// a reply.
const (
	holdPace     = 20 * time.Millisecond
	holdPatience = 20 * time.Second
)

// holdOpen opens one connection and asks over it again and again until ctx ends. It returns
// how many replies there were; an error says that the connection did not outlive them.
// It speaks HTTP by itself, since an http.Transport gives up connections for reasons of
// its own: on a busy machine when its goroutines do not meet within 50 ms.
func holdOpen(ctx context.Context, from *lab.Machine, address netip.Addr, port uint16) (replies int, err error) {
	h, err := newHeld(ctx, from, 0, netip.AddrPortFrom(address, port))
	if err != nil {
		return 0, err
	}
	ticks := time.NewTicker(holdPace)
	defer ticks.Stop()
	for ; err == nil && ctx.Err() == nil; <-ticks.C {
		if err = h.ask(holdPatience); err == nil {
			replies++
		}
	}
	return replies, errors.Join(err, h.conn.Close())
}

// held is one connection that is held.
type held struct {
	conn    *net.TCPConn
	in      *bufio.Reader
	request *http.Request
}

// newHeld opens one from a port of the client, 0 for any. The error is that of the network.
func newHeld(ctx context.Context, from *lab.Machine, port int, to netip.AddrPort) (h *held, err error) {
	h = &held{}
	if h.request, err = http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to.String()+"/hostname", http.NoBody); err != nil {
		return nil, err
	}
	dialing, stop := context.WithTimeout(ctx, holdPatience)
	defer stop()
	err = from.Inside(func() error {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}}
		conn, err := dialer.DialContext(dialing, "tcp", to.String())
		if err == nil {
			h.conn, h.in = conn.(*net.TCPConn), bufio.NewReader(conn)
		}
		return err
	})
	return h, err
}

// abort ends it with a reset, which frees its port at once. The error is the kernel's.
func (h *held) abort() error { return errors.Join(h.conn.SetLinger(0), h.conn.Close()) }

// ask sends a request over the connection and reads the reply, for which it waits for so long.
func (h *held) ask(patience time.Duration) (err error) {
	if err := h.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := h.request.Write(h.conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(h.in, h.request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	_, err = lab.Body(response)
	return err
}
