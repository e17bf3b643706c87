package command_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// handsTo waits until the kernel of the node hands over to another one; nil: to none.
func (n *node) handsTo(l *lab, former *node) {
	n.t.Helper()
	family := map[addr.Family]string{addr.IPv4: "ip", addr.IPv6: "ip6"}[addr.FamilyOf(l.vip)]
	want := ""
	for i, other := range l.nodes {
		if other == former {
			want = fmt.Sprintf("%s : %s", l.vip, l.host(i+1))
		}
	}
	for deadline := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		var have []byte
		err := n.Do(func() (err error) {
			have, err = exec.CommandContext(n.t.Context(), "nft", "list", "map", family, kernelwatch.HandoverTable, "former").CombinedOutput()
			return err
		})
		if err == nil && (want == "" && !strings.Contains(string(have), "elements") || want != "" && strings.Contains(string(have), want)) {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s hands over by %s (%v), want %q", n.name, have, err, want)
		}
	}
}

// handedOver counts the packets that the node handed over.
func (n *node) handedOver(l *lab) (packets uint64) {
	n.t.Helper()
	table := nftable.New(addr.FamilyOf(l.vip), kernelwatch.HandoverTable)
	if err := n.Do(func() (err error) { packets, err = table.Packets(); return err }); err != nil {
		n.t.Fatal(err)
	}
	return packets
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
	at, first, second := l.serve(t), l.nodes[0], l.nodes[1]
	oneOf(t, func() error {
		select {
		case <-first.exited: // in the attempt before
			first.startPulse()
			first.until("owner", owns)
		default:
		}
		l.resolves(t, first)
		second.handsTo(l, first)
		began := l.connect(t, at)
		if err := began.goesOn(first, 100*time.Millisecond); err != nil {
			return err
		}
		before := second.handedOver(l)

		first.kill()
		if err := began.goesOn(first, 2*askedAgain); err != nil {
			return fmt.Errorf("pulse was killed: %w", err)
		}
		l.neighbour(t, second)
		if err := began.goesOn(first, 2*askedAgain); err != nil {
			return fmt.Errorf("pulse is dead: %w", err)
		}
		if second.handedOver(l) == before {
			return errors.New("nothing was handed over, so that this shows nothing")
		}
		fresh := l.connect(t, at)
		if err := fresh.goesOn(second, 10*time.Millisecond); err != nil {
			return fmt.Errorf("a new one, while pulse is dead: %w", err)
		}

		first.startPulse()
		first.until("owner", owns)
		l.neighbour(t, first)
		for of, c := range map[*node]*connection{first: began, second: fresh} {
			if err := c.goesOn(of, 100*time.Millisecond); err != nil {
				return fmt.Errorf("pulse is back: %w", err)
			}
		}

		first.kill()
		l.neighbour(t, second)
		l.segment.Pull(first.plug)
		second.handsTo(l, nil)
		if _, err := began.ask(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the node is dead: %v, want a reset", err)
		}
		if err := l.connect(t, at).goesOn(second, 10*time.Millisecond); err != nil {
			t.Errorf("a new one, while the node is dead: %v", err)
		}
		l.segment.Plug(first.plug)
		first.startPulse()
		first.until("owner", owns)
		second.until("without the address", func(s api.State) bool { return !owns(s) })
		return nil
	})
}

// askedAgain is how often a kernel is asked.
const askedAgain = time.Second

// TestConnectionsOutliveAMoveWithoutTheAgent: the address moves on twice to nodes whose agents are away, as while the
// API server is. Connections that are open go on with the node that had the address when they began.
func TestConnectionsOutliveAMoveWithoutTheAgent(t *testing.T) {
	inBoth(t, connectionsOutliveAMoveWithoutTheAgent)
}

func connectionsOutliveAMoveWithoutTheAgent(t *testing.T, p plan) {
	l := newLabOf(t, p, 3)
	l.start(t)
	at := l.serve(t)
	first, second, third := l.nodes[0], l.nodes[1], l.nodes[2]
	third.stopAgent()
	moves := func(from, to *node) {
		l.resolves(t, from)
		to.handsTo(l, from)
		began := l.connect(t, at)
		if err := began.goesOn(from, 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		before, unable := to.handedOver(l), l.table(from)
		unable.Unable = []netip.Addr{l.vip}
		from.say(unable)
		l.neighbour(t, to)
		if err := began.goesOn(from, time.Second); err != nil {
			t.Errorf("%s cannot serve any more: %v", from.name, err)
		}
		if to.handedOver(l) == before {
			t.Error("nothing was handed over, so that this shows nothing")
		}
		if err := l.connect(t, at).goesOn(to, 10*time.Millisecond); err != nil {
			t.Errorf("a new one: %v", err)
		}
	}
	moves(first, second)
	moves(second, third)
}
