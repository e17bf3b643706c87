package command_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
	"fairlead.dev/fairlead/speaker/pulse"
)

// handing has a node hand over what its pulse says, as the agent does.
type handing struct {
	*node
	over *nftables.Handover

	mu   sync.Mutex
	done map[netip.Addr]netip.Addr // what is in the kernel
}

// handOver begins to do so on each node.
func (l *lab) handOver(t *testing.T) []*handing {
	t.Helper()
	var all []*handing
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	for _, n := range l.nodes {
		h := &handing{node: n, over: nftables.NewHandover(nil)}
		all = append(all, h)
		ended.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
				if err := h.follow(l); err != nil {
					t.Errorf("%s: %v", n.name, err)
					return
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); ended.Wait() })
	return all
}

// follow brings the kernel to what pulse says now. While that is away, it stays as it is.
func (h *handing) follow(l *lab) error {
	state, there := h.client.State()
	if !there {
		return nil
	}
	want := map[netip.Addr]netip.Addr{}
	for vip, former := range state.Former {
		for i, n := range l.nodes {
			if n.name == former {
				want[vip] = l.host(i + 1)
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done != nil && maps.Equal(want, h.done) {
		return nil
	}
	h.done = want
	return h.Do(func() error { return h.over.Apply(want, 0) })
}

// handsTo waits until the kernel hands over to a node; nil: to none.
func (h *handing) handsTo(l *lab, former *node) {
	h.t.Helper()
	want := netip.Addr{}
	for i, n := range l.nodes {
		if n == former {
			want = l.host(i + 1)
		}
	}
	for deadline := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		done, have := h.done != nil, h.done[l.vip]
		h.mu.Unlock()
		if done && have == want {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s hands over to %q, want %q", h.name, have, want)
		}
	}
}

// packets counts what was handed over.
func (h *handing) packets(l *lab) (n uint64) {
	h.t.Helper()
	if err := h.Do(func() (err error) { n, err = h.over.Packets(addr.FamilyOf(l.vip)); return err }); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// serve has each node answer each line on connections to the address with its name.
func (l *lab) serve(t *testing.T) (at string) {
	t.Helper()
	at = netip.AddrPortFrom(l.vip, 7008).String()
	for _, n := range l.nodes {
		var server net.Listener
		if err := n.Do(func() (err error) {
			server, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		go func() {
			for {
				conn, err := server.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { _ = conn.Close() })
				go func() {
					for lines := bufio.NewScanner(conn); lines.Scan(); {
						_, _ = fmt.Fprintln(conn, n.name) // a connection may be lost
					}
				}()
			}
		}()
	}
	return at
}

// connection is one from the client.
type connection struct {
	net.Conn
	answers *bufio.Reader
}

func (l *lab) connect(t *testing.T, at string) *connection {
	t.Helper()
	conn, err := l.client.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &connection{conn, bufio.NewReader(conn)}
}

// ask asks once who is at the other end.
func (c *connection) ask() (string, error) {
	if err := c.SetDeadline(time.Now().Add(soon)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, "?"); err != nil {
		return "", err
	}
	line, err := c.answers.ReadString('\n')
	return strings.TrimSpace(line), err
}

// goesOn asks again and again for a while, and fails unless a node answers each time.
func (c *connection) goesOn(n *node, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		switch got, err := c.ask(); {
		case err != nil:
			return fmt.Errorf("a connection to %s: %w", n.name, err)
		case got != n.name:
			return fmt.Errorf("a connection to %s is answered by %s", n.name, got)
		}
	}
	return nil
}

// TestConnectionsOutliveAKilledPulse: pulse dies on the node that has the address, whose kernel goes
// on. Connections that are open go on, too, while another node has the address and when it is back,
// and new ones are that node's. If the whole node dies, they are reset, and it is handed nothing.
func TestConnectionsOutliveAKilledPulse(t *testing.T) {
	inBoth(t, connectionsOutliveAKilledPulse)
}

func connectionsOutliveAKilledPulse(t *testing.T, p plan) {
	l := newLabOf(t, p, 3)
	l.start(t)
	at, all := l.serve(t), l.handOver(t)
	first, second := all[0], all[1]
	oneOf(t, func() error {
		select {
		case <-first.exited: // in the attempt before
			first.startPulse()
			first.until("owner", owns)
		default:
		}
		l.resolves(t, first.node)
		second.handsTo(l, first.node)
		began := l.connect(t, at)
		if err := began.goesOn(first.node, 100*time.Millisecond); err != nil {
			return err
		}
		before := second.packets(l)

		first.kill()
		if err := began.goesOn(first.node, 2*askedAgain); err != nil {
			return fmt.Errorf("pulse was killed: %w", err)
		}
		l.neighbour(t, second.node)
		if err := began.goesOn(first.node, 2*askedAgain); err != nil {
			return fmt.Errorf("pulse is dead: %w", err)
		}
		if second.packets(l) == before {
			return errors.New("nothing was handed over, so that this shows nothing")
		}
		fresh := l.connect(t, at)
		if err := fresh.goesOn(second.node, 10*time.Millisecond); err != nil {
			return fmt.Errorf("a new one, while pulse is dead: %w", err)
		}

		first.startPulse()
		first.until("owner", owns)
		l.neighbour(t, first.node)
		for of, c := range map[*handing]*connection{first: began, second: fresh} {
			if err := c.goesOn(of.node, 100*time.Millisecond); err != nil {
				return fmt.Errorf("pulse is back: %w", err)
			}
		}

		first.kill()
		l.neighbour(t, second.node)
		l.segment.Pull(first.plug)
		second.handsTo(l, nil)
		if _, err := began.ask(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the node is dead: %v, want a reset", err)
		}
		if err := l.connect(t, at).goesOn(second.node, 10*time.Millisecond); err != nil {
			t.Errorf("a new one, while the node is dead: %v", err)
		}
		l.segment.Plug(first.plug)
		first.startPulse()
		first.until("owner", owns)
		second.until("without the address", func(s pulse.State) bool { return !owns(s) })
		return nil
	})
}

// askedAgain is how often a kernel is asked.
const askedAgain = time.Second
