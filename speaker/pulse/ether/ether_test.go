package ether_test

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/ether"
)

// experimental is the EtherType of the tests.
const experimental = 0x88b5

// listen opens a socket of the host that hears all frames of the tests.
func listen(t *testing.T, h *linkstest.Host, name string) *ether.Socket {
	t.Helper()
	index := h.Link(name).Attrs().Index
	var socket *ether.Socket
	if err := h.Do(func() (err error) {
		socket, err = ether.Listen(index, name, experimental, []bpf.Instruction{bpf.RetConstant{Val: 1514}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// send sends a frame to all.
func send(s *ether.Socket, from net.HardwareAddr) error {
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	frame := slices.Concat(all, from, []byte{experimental >> 8, experimental & 0xff}, make([]byte, 46))
	_, err := s.WriteTo(frame, &packet.Addr{HardwareAddr: all})
	return err
}

// A frame waits only so long for room in the queue of an interface that sends nothing, and those after
// it, which are many when addresses move, do not wait at all until it sends again.
func TestAFullQueueIsNotWaitedFor(t *testing.T) {
	h, segment := linkstest.NewHost(t), linkstest.NewSegment(t)
	segment.Attach(h, "eth0", "192.0.2.1/24")
	socket, mac := listen(t, h, "eth0"), h.MAC("eth0")
	if err := send(socket, mac); err != nil {
		t.Fatal(err)
	}
	h.Stall("eth0")
	const many = 10000
	refused, longest := 0, time.Duration(0)
	ended := make(chan time.Duration)
	begun := time.Now()
	go func() {
		for range many {
			at := time.Now()
			if errors.Is(send(socket, mac), unix.EAGAIN) {
				refused++
			}
			longest = max(longest, time.Since(at))
		}
		ended <- time.Since(begun)
	}()
	select {
	case took := <-ended:
		t.Logf("%d of %d frames were refused in %s, each within %s", refused, many, took, longest)
		if refused < many/2 {
			t.Errorf("%d frames were refused, want most of %d", refused, many)
		}
		if waits := time.Duration(refused) * 5 * time.Millisecond; took > waits/2 {
			t.Errorf("it took %s, as if all had waited", took)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("a frame waits for a queue that stands still")
	}
	h.Flow("eth0")
	for range 100 {
		if err := send(socket, mac); err != nil {
			t.Fatalf("the interface sends again, and a frame is refused: %v", err)
		}
	}
}

func TestAnAddressThatIsNoStationIsRefused(t *testing.T) {
	h := linkstest.NewHost(t)
	socket := listen(t, h, "lo")
	for _, to := range []net.Addr{nil, &net.UDPAddr{}, &packet.Addr{}, &packet.Addr{HardwareAddr: make([]byte, 20)}} {
		if _, err := socket.WriteTo(make([]byte, 60), to); err == nil {
			t.Errorf("a frame was sent to %v", to)
		}
	}
}

// Questions that come while nobody reads wait, thousands of them, and those for which there is no
// room are counted.
func TestWhatComesWhileNobodyReadsWaits(t *testing.T) {
	h, asker, segment := linkstest.NewHost(t), linkstest.NewHost(t), linkstest.NewSegment(t)
	segment.Attach(h, "eth0", "192.0.2.1/24")
	segment.Attach(asker, "eth0", "192.0.2.2/24")
	here, there, mac := listen(t, h, "eth0"), listen(t, asker, "eth0"), asker.MAC("eth0")
	end := time.Now().Add(time.Minute)
	ask := func(many int) {
		t.Helper()
		for range many {
			err := send(there, mac)
			for ; errors.Is(err, unix.EAGAIN) && time.Now().Before(end); err = send(there, mac) {
				time.Sleep(time.Millisecond) // the queue of a busy machine is full for longer than a frame waits
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	const many = 4000
	ask(many)
	if err := here.SetReadDeadline(end); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1514)
	for i := range many {
		if _, _, err := here.ReadFrom(buffer); err != nil {
			t.Fatalf("%d of %d frames waited: %v", i, many, err)
		}
	}
	if n := here.Dropped(); n != 0 {
		t.Errorf("%d frames were dropped, and all were read", n)
	}
	var dropped uint64
	for ; dropped == 0 && time.Now().Before(end); dropped = here.Dropped() {
		ask(many)
	}
	if dropped == 0 {
		t.Fatal("nobody counts what there was no room for")
	}
	for before := uint64(0); before != dropped && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // in which the last frames come
		before, dropped = dropped, max(dropped, here.Dropped())
	}
	if again := here.Dropped(); again != dropped {
		t.Errorf("%d frames were dropped, and then %d", dropped, again)
	}
	_ = here.Close()
	if last := here.Dropped(); last != dropped {
		t.Errorf("%d frames were dropped, and %d when it was closed", dropped, last)
	}
}
