package command_test

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// A node with two interfaces on the network answers on one of them, so that clients see one MAC. What its kernel says
// on the other one is no word of the node that it is to hand an address over to, and which has not learned of it.
func TestANodeWithTwoInterfacesOnANetworkAnswersUntilItsSuccessorDoes(t *testing.T) { inBoth(t, twice) }

func twice(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	first, second := l.nodes[0], l.nodes[1]
	l.segment.Attach(first.Host, "eth1", netip.PrefixFrom(p.host(11), p.lan.Bits()).String())
	l.start(t)
	first.until("owner by one interface", func(s api.State) bool { return slices.Equal(s.Owned[l.vip].Interfaces, []string{"eth0"}) })
	if p.vip.Is4() {
		l.oneMAC(t, first)
	}
	moved := l.table(first)
	moved.Claims[l.vip] = desired.Candidacy{Candidates: []string{second.name, first.name}}
	first.say(moved)
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if s, _ := first.client.State(); !owns(s) {
			t.Fatal("it has stopped, and no other node answers")
		}
	}
	moved = l.table(second)
	moved.Claims[l.vip] = desired.Candidacy{Candidates: []string{second.name, first.name}}
	second.say(moved)
	second.until("owner", owns)
	first.until("without the address", func(s api.State) bool { return !owns(s) })
}

// oneMAC has the client ask several times, and fails the test unless all that replies is the interface of the node.
func (l *lab) oneMAC(t *testing.T, n *node) {
	t.Helper()
	socket := l.raw(t)
	replies := 0
	for range 5 {
		l.ask()
		if err := socket.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 1500); ; {
			size, _, err := socket.ReadFrom(buf)
			if err != nil {
				break // it was the last one
			}
			var f ethernet.Frame
			var p arp.Packet
			if f.UnmarshalBinary(buf[:size]) != nil || p.UnmarshalBinary(f.Payload) != nil || p.SenderIP != l.vip || p.Operation != arp.OperationReply {
				continue
			}
			if replies++; !bytes.Equal(f.Source, n.mac()) || !bytes.Equal(p.SenderHardwareAddr, n.mac()) {
				t.Errorf("%s says that %s is at %s", f.Source, l.vip, p.SenderHardwareAddr)
			}
		}
	}
	if replies == 0 {
		t.Error("none has replied")
	}
}
