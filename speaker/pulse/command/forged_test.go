package command_test

import (
	"net"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// TestFramesWithTheMACOfADeadNode: a host of the segment tells of the address with the MAC of the node that had it
// before, by its own Ethernet source and by that of the node. The successor goes on to answer.
func TestFramesWithTheMACOfADeadNode(t *testing.T) {
	l := newLab(t, 3)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	dead := first.mac()
	l.segment.Pull(first.plug)
	second.until("took over", owns)
	socket := l.raw(t)
	lost := make(chan struct{})
	stop := time.Now().Add(4 * time.Second)
	go func() {
		defer close(lost)
		for time.Now().Before(stop) {
			if s, there := second.client.State(); there && !owns(s) {
				t.Error("the successor stopped answering")
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	for turn := 0; time.Now().Before(stop); turn++ {
		source := l.client.MAC("eth0")
		if turn%2 == 1 {
			source = dead
		}
		p, err := arp.NewPacket(arp.OperationRequest, dead, l.vip, make(net.HardwareAddr, 6), l.vip)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := p.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		f := ethernet.Frame{Destination: ethernet.Broadcast, Source: source, EtherType: ethernet.EtherTypeARP, Payload: payload}
		frame, err := f.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := socket.WriteTo(frame, &packet.Addr{HardwareAddr: ethernet.Broadcast}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond)
	}
	<-lost
	l.resolves(t, second)
	if s, _ := second.client.State(); len(s.Left) > 0 {
		t.Errorf("left: %v", s.Left)
	}
}

// raw is a packet socket of the client.
func (l *lab) raw(t *testing.T) *packet.Conn {
	t.Helper()
	var socket *packet.Conn
	if err := l.client.Do(func() (err error) {
		link := l.client.Link("eth0").Attrs()
		socket, err = packet.Listen(&net.Interface{Index: link.Index, Name: link.Name}, packet.Raw, unix.ETH_P_ARP, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}
