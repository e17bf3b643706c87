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
	at := netip.AddrPortFrom(address, port).String()
	dialing, stop := context.WithTimeout(ctx, holdPatience)
	defer stop()
	conn, err := from.Dial(dialing, "tcp", at)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/hostname", http.NoBody)
	if err != nil {
		return 0, err
	}
	in := bufio.NewReader(conn)
	ticks := time.NewTicker(holdPace)
	defer ticks.Stop()
	for ; ctx.Err() == nil; <-ticks.C {
		if err := askAgain(conn, in, request); err != nil {
			return replies, err
		}
		replies++
	}
	return replies, nil
}

// askAgain sends a request over an open connection and reads the reply.
func askAgain(conn net.Conn, in *bufio.Reader, request *http.Request) (err error) {
	if err := conn.SetDeadline(time.Now().Add(holdPatience)); err != nil {
		return err
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(in, request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	_, err = lab.Body(response)
	return err
}
