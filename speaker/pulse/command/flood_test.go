package command_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batches "golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// deaths is how many deaths of nodes the node has counted.
func (n *node) deaths(t *testing.T) int {
	t.Helper()
	of := regexp.MustCompile(`(?m)^fairlead_pulse_node_deaths_total (\d+)`).FindStringSubmatch(get(t, n, "/metrics"))
	if of == nil {
		t.Fatal("no deaths are counted")
	}
	count, err := strconv.Atoi(of[1])
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// used is the time of processors that pulse has used.
func (n *node) used() time.Duration {
	n.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.process.Process.Pid))
	if err != nil {
		n.t.Fatal(err)
	}
	const tick = 10 * time.Millisecond
	var total time.Duration
	for _, field := range strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[11:13] { // utime and stime
		ticks, err := strconv.Atoi(field)
		if err != nil {
			n.t.Fatal(err)
		}
		total += time.Duration(ticks) * tick
	}
	return total
}

// TestAFloodOfStrangers: a pod sends hundreds of thousands of datagrams a second to the port of the hellos, from that
// port. Nothing moves, and other processes get their turn.
func TestAFloodOfStrangers(t *testing.T) {
	l := newLab(t, 3)
	l.start(t)
	first := l.nodes[0]
	before := first.deaths(t)
	var pod net.PacketConn
	if err := l.client.Do(func() (err error) {
		pod, err = net.ListenPacket("udp4", ":7475")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.host(1), 7475))
	// The kernel makes a datagram of each line (UDP_SEGMENT), at the receiver: a pod can send that many.
	line := []byte("FLHI\x01 and more that is not a hello of a node with our key, if any node looks at it")
	const lines = 16
	if err := segmented(pod, len(line)); err != nil {
		t.Fatal(err)
	}
	batch := make([]batches.Message, 64)
	for i := range batch {
		batch[i] = batches.Message{Buffers: [][]byte{bytes.Repeat(line, lines)}, Addr: to}
	}
	// A kernel without connection tracking on this way passes on a million, and on two processors nothing else gets a turn.
	const lasts, rate = 5 * time.Second, 400_000
	begin := time.Now()
	end, ended := begin.Add(lasts), make(chan int)
	go func() {
		sent, writer := 0, batches.NewPacketConn(pod)
		for time.Now().Before(end) {
			n, err := writer.WriteBatch(batch, 0)
			if err != nil {
				continue // there is no room for a moment
			}
			sent += n * lines
			time.Sleep(time.Until(begin.Add(time.Duration(sent) * time.Second / rate)))
		}
		ended <- sent
	}()
	var late []time.Duration
	used := first.used()
	for time.Now().Before(end) {
		begun := time.Now()
		time.Sleep(time.Millisecond)
		late = append(late, time.Since(begun)-time.Millisecond)
		if s, there := first.client.State(); !there || !owns(s) || len(s.Silent) > 0 {
			t.Fatalf("the owner says %+v", s)
		}
	}
	used = first.used() - used
	slices.Sort(late)
	t.Logf("%d datagrams a second; pulse used %v of %v, and this process was late by %v once in a thousand times",
		<-ended/int(lasts/time.Second), used, lasts, late[len(late)*999/1000])
	if used > lasts/4 {
		t.Errorf("pulse used %v of %v", used, lasts)
	}
	if after := first.deaths(t); after != before {
		t.Errorf("%d deaths", after-before)
	}
	for _, n := range l.nodes {
		if s, _ := n.client.State(); len(s.Silent) > 0 || owns(s) != (n == first) {
			t.Errorf("%s says %+v", n.name, s)
		}
	}
}

// segmented has the kernel make datagrams of that size of each message.
func segmented(conn net.PacketConn, size int) error {
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size) })
	return errors.Join(err, refused)
}
