package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
	"fairlead.dev/fairlead/e2e/product"
)

// tricklePace is the least time between two requests of a trickle.
const tricklePace = 40 * time.Millisecond

// datagramPatience is how long the answer to a datagram may take, which nobody sends again.
const datagramPatience = 5 * time.Second

// trickle asks again and again until ctx ends, and counts. An answer that has not come while
// this process itself was held up is counted as such.
func trickle(ctx context.Context, ask func(ctx context.Context) error) tally {
	count := tally{Errors: map[string]int{}}
	ticks := time.NewTicker(tricklePace)
	defer ticks.Stop()
	stalls := probe.WatchStalls()
	defer stalls.Stop()
	for ; ctx.Err() == nil; <-ticks.C {
		began := time.Now()
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), floodPatience)
		err := ask(one)
		cancel()
		switch {
		case err == nil:
			count.OK++
			count.Longest = max(count.Longest, time.Since(began))
		case timedOut(err) && stalls.Since(began):
			count.Held++
		default:
			count.Failed++
			count.Errors[fmt.Sprintf("%s: %v", began.Format("15:04:05.000"), withoutPort(err))]++
		}
	}
	return count
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// askOverTCP begins a connection to the web server, and asks over it.
func askOverTCP(ctx context.Context, from *lab.Machine, to netip.AddrPort) error {
	until, _ := ctx.Deadline()
	f := flooding{from: from, to: to}
	_, _, err := f.ask(until)
	return err
}

// askOverUDP begins a flow to the web server and asks once.
func askOverUDP(ctx context.Context, from *lab.Machine, to netip.AddrPort) error {
	conn, err := from.Dial(ctx, "udp", to.String())
	if err != nil {
		return err
	}
	return errors.Join(askDatagram(conn), conn.Close())
}

func askDatagram(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(datagramPatience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("hostname\n")); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 256))
	return err
}

// keepAskingUDP begins one flow to the web server; what it returns asks over it, and end
// ends it.
func keepAskingUDP(ctx context.Context, from *lab.Machine, to netip.AddrPort) (ask func(context.Context) error, end func() error, err error) {
	conn, err := from.Dial(ctx, "udp", to.String())
	if err != nil {
		return nil, nil, err
	}
	return func(context.Context) error { return askDatagram(conn) }, conn.Close, nil
}

// askFromPod has a pod of the web server begin a flow, by "http" or "udp", and ask once. The pod is
// told so past all Services, from the control plane.
func askFromPod(ctx context.Context, c *product.Cluster, pod netip.Addr, protocol string, to netip.AddrPort) error {
	query := url.Values{
		"request": {"hostname"}, "protocol": {protocol}, "tries": {"1"},
		"host": {to.Addr().String()}, "port": {strconv.Itoa(int(to.Port()))},
	}
	address := netip.AddrPortFrom(pod, product.WebTCP)
	text, err := c.ControlPlane.Get(ctx, "http://"+address.String()+"/dial?"+query.Encode())
	if err != nil {
		return err
	}
	var outcome struct{ Responses, Errors []string }
	if err := json.Unmarshal([]byte(text), &outcome); err != nil {
		return fmt.Errorf("the pod says %q: %w", text, err)
	}
	if len(outcome.Errors) > 0 || len(outcome.Responses) == 0 {
		return fmt.Errorf("the pod got %v, errors %q", outcome.Responses, outcome.Errors)
	}
	return nil
}
