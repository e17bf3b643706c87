package hello

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

var attacker = netip.MustParseAddrPort("10.255.255.255:7475")

// TestRecordingRevivesNobody: an attacker who recorded all that a node ever
// sent can make it alive neither for those who knew it nor for a process that
// just began.
func TestRecordingRevivesNobody(t *testing.T) {
	w := newWorld(3, 1)
	var recording [][]byte
	w.arrived = func(from, _ int, datagram []byte) {
		if from == 0 {
			recording = append(recording, bytes.Clone(datagram))
		}
	}
	for i := range w.hosts {
		w.start(i)
	}
	w.run(4 * testDetect)
	w.hosts[0].state, w.hosts[2].state = nil, nil
	w.run(2 * testDetect)
	w.start(2)
	w.run(2 * testDetect)
	w.expect(t, "dead", 1, 2)
	for range 3 {
		for _, datagram := range recording {
			for _, to := range []int{1, 2} {
				w.send(to, w.hosts[to].state.hear(w.now, datagram, attacker))
			}
			w.run(testInterval / 20)
			w.expect(t, "replayed", 1, 2)
		}
	}
	// Nor do they keep it from coming back.
	w.start(0)
	for _, datagram := range recording {
		w.send(1, w.hosts[1].state.hear(w.now, datagram, attacker))
	}
	w.run(2*testInterval + 4*testDelay)
	w.expect(t, "back", 0, 1, 2)
}

// TestUnseenRecordingRevivesNobody: hellos that were caught on their way, and
// thus are new to the receiver, revive a node no more once it is dead.
func TestUnseenRecordingRevivesNobody(t *testing.T) {
	w := started(t, 2, 1)
	w.cut[[2]int{0, 1}] = true
	var caught [][]byte
	for range 20 {
		w.run(testInterval)
		caught = append(caught, w.hosts[0].state.hello(w.now, 0, 0)...)
	}
	w.hosts[0].state = nil
	w.expect(t, "dead", 1)
	for _, datagram := range caught {
		w.send(1, w.hosts[1].state.hear(w.now, datagram, attacker))
		w.run(testInterval)
		w.expect(t, "replayed", 1)
	}
}

// TestReplayDelaysNoDeath: a hello repeated while its sender is still counted as
// alive does not count, and one that came by two ways is no attack.
func TestReplayDelaysNoDeath(t *testing.T) {
	w := started(t, 2, 1)
	var heard [][]byte
	w.arrived = func(from, _ int, datagram []byte) {
		if from == 0 {
			heard = append(heard, bytes.Clone(datagram))
		}
	}
	w.run(testDetect)
	w.hosts[0].state = nil
	w.run(testDetect - 2*testInterval)
	w.expect(t, "silent for a while", 0, 1)
	before := w.hosts[1].state.figures()
	for _, datagram := range heard {
		w.send(1, w.hosts[1].state.hear(w.now, datagram, attacker))
	}
	after := w.hosts[1].state.figures()
	if n := after.Rejected[ReasonReplayed] - before.Rejected[ReasonReplayed]; n != uint64(len(heard)-1) {
		t.Errorf("%d of %d repeated hellos were rejected, want all but the newest", n, len(heard))
	}
	if n := after.Duplicates - before.Duplicates; n != 1 {
		t.Errorf("%d duplicates, want 1, the newest hello", n)
	}
	w.run(2*testInterval + testDelay)
	w.expect(t, "silent for a detection time", 1)
}

// TestAnswersGrowOld: an answer to our nonce proves nothing that comes later than any hello
// is waited for; on a busy machine it may take longer than a detection time.
func TestAnswersGrowOld(t *testing.T) {
	for late, want := range map[time.Duration]bool{testDetect / 2: true, 2 * testDetect: true, longest + testInterval: false} {
		w := newWorld(2, 1)
		receiver, sender := 1, w.hosts[0]
		w.start(receiver)
		w.start(0)
		w.cut[[2]int{0, receiver}] = true
		first := sender.state.hello(w.now, 0, 0)[0]
		asked := w.hosts[receiver].state.hear(w.now, first, attacker)
		answer := sender.state.hear(w.now, asked.datagrams[0], attacker)
		sender.state = nil
		w.run(late)
		w.hosts[receiver].state.hear(w.now, answer.datagrams[0], attacker)
		if got := w.alive(receiver, 0); got != want {
			t.Errorf("an answer after %v revives: %v, want %v", late, got, want)
		}
	}
}
