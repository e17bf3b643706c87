package netlab

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Isolated(m.Run) }

// TestALostQuestionIsSentAgain has a server that answers no question the first time, and
// its answers twice.
func TestALostQuestionIsSentAgain(t *testing.T) {
	h := NewHost(t, "host")
	var server net.PacketConn
	var err error
	h.Do(func() { server, err = net.ListenPacket("udp", "127.0.0.1:53") })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	go func() {
		buffer, seen := make([]byte, 64), map[string]int{}
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			question := strings.TrimSpace(string(buffer[:n]))
			if seen[question]++; seen[question] > 1 {
				for range 2 {
					_, _ = server.WriteTo(answer(question, "server"+question, from, server.LocalAddr()), from)
				}
			}
		}
	}()
	flow, err := h.Dial("udp", netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:53"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	for _, want := range []string{"server1", "server2"} { // the second answer to the first question is none to the second
		if got, err := flow.Ask(); err != nil || got.Server != want {
			t.Errorf("%v, %v, want an answer of %s", got, err, want)
		}
	}
	if got, err := flow.Once().AskFor(2 * sendAgain); !errors.Is(err, ErrSilence) {
		t.Errorf("%v, %v, though the question was to be sent once", got, err)
	}
}

// TestFlowsHavePortsOfTheirOwn holds that a flow does not get the port of one that has ended,
// nor one that is in use, whichever address it comes from.
func TestFlowsHavePortsOfTheirOwn(t *testing.T) {
	h := NewHost(t, "host")
	h.Serve(53)
	taken := map[string]map[uint16]bool{"udp": {}, "tcp": {}}
	for _, from := range []string{"0.0.0.0:0", "127.0.0.1:0", "[::]:0", "[::1]:0"} {
		laddr := netip.MustParseAddrPort(from)
		to := netip.MustParseAddrPort("127.0.0.1:53")
		if laddr.Addr().Is6() {
			to = netip.MustParseAddrPort("[::1]:53")
		}
		if laddr.Addr().IsUnspecified() {
			laddr = netip.AddrPort{}
		}
		for network, ports := range taken {
			for range 50 {
				c, err := h.Dial(network, laddr, to, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Ask(); err != nil || ports[c.Local().Port()] {
					t.Errorf("%s from %s: error %v, or a port that another flow had: %d", network, from, err, c.Local().Port())
				}
				ports[c.Local().Port()] = true
				c.Close()
			}
		}
	}
}
