package bgp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// cut makes the node's cable lose everything, while both its ends say that all is well. With a prefix and a time it
// holds that the router's kernel has lost the route so long after the last packet of BFD: cut VIP within 1s
func (s *scene) cut(args []string) {
	if len(args) == 0 {
		s.loseAll()
		return
	}
	if len(args) != 3 || args[1] != "within" {
		s.fail("want: cut, or: cut VIP within 1s")
	}
	most, err := time.ParseDuration(args[2])
	if err != nil {
		s.fail("%v", err)
	}
	var prefixes []netip.Prefix
	s.each(args[:1], func(args []string) { prefixes = append(prefixes, netip.MustParsePrefix(args[0])) })
	s.near().hurry()
	heard := s.near().hearBFD()
	// All else that the machine does makes it later and nothing makes it sooner, so that the best of some times is nearest
	// to what it takes where the router has a machine of its own. FRR 8.4 takes 75 ms itself, from BFD to its kernel.
	const times = 10
	var all []time.Duration
	for range times {
		took := s.dies(prefixes, heard)
		all = append(all, took)
		if took <= most {
			s.t.Logf("gone %v after the last packet", all)
			return
		}
		s.mend(nil)
	}
	s.fail("the routes were gone %v after the last packet of BFD, want %v once", all, most)
}

// loseAll makes the cable lose everything.
func (s *scene) loseAll() {
	s.near().must("nft", "add table netdev cut { chain in { type filter hook ingress device "+cable+" priority 0; policy drop; }; "+
		"chain out { type filter hook egress device "+cable+" priority 0; policy drop; }; }")
}

// dies cuts the cable once all is well, and tells how long after the last packet that it heard of BFD the router's kernel
// had lost all these routes. It is never less than the detection time: a route that went sooner went for something else.
func (s *scene) dies(prefixes []netip.Prefix, heard *hearing) time.Duration {
	detection := s.setup.timers.every * time.Duration(s.setup.timers.multiplier)
	s.near().waitFor(fmt.Sprintf("%v are in the kernel, and BFD is up and notices within %v", prefixes, detection), func() bool {
		return s.bothUp() && s.routerDetects() == detection &&
			!slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return len(s.near().kernel(p.String())) == 0 })
	})
	gone := s.near().whenGone(prefixes)
	s.loseAll()
	at := gone()
	took := at.Sub(heard.last())
	const clocks = 10 * time.Millisecond // of the router's, which looks at its own once for all that is ready
	if took < detection-clocks {
		s.t.Logf("a route was gone %v after the last packet, sooner than BFD notices anything", took)
		return patience
	}
	return took
}

// routerDetects is after what time without a packet the router takes node 1 for dead.
func (s *scene) routerDetects() time.Duration {
	local := s.nodes[0].who().SourceAddress.WithZone("")
	if s.birdd != nil {
		return s.birdd.detects(local)
	}
	peer := s.frrd.bfd(local)
	return time.Duration(max(peer.RemoteTx, peer.Rx)*peer.RemoteMult) * time.Millisecond
}

// hurry runs the router's daemons before all ordinary processes: a router is a machine of its own as a rule.
func (r *router) hurry() {
	r.t.Helper()
	for _, daemon := range r.daemon {
		r.must("chrt", "--all-tasks", "--rr", "--pid", "1", strconv.Itoa(daemon.Process.Pid))
	}
}

// whenGone waits until the router's kernel has lost each of these prefixes, and tells when.
func (r *router) whenGone(prefixes []netip.Prefix) (gone func() time.Time) {
	r.t.Helper()
	updates, stop := r.routeUpdates()
	return func() time.Time {
		defer stop()
		left := slices.Clone(prefixes)
		timeout := time.After(patience)
		for {
			select {
			case update := <-updates:
				if update.Type == unix.RTM_DELROUTE && update.Dst != nil {
					gone := netip.MustParsePrefix(update.Dst.String())
					left = slices.DeleteFunc(left, func(p netip.Prefix) bool { return p == gone })
				}
				if len(left) == 0 {
					return time.Now()
				}
			case <-timeout:
				r.t.Fatalf("after %v the router's kernel still routes %v", patience, left)
			}
		}
	}
}

// hearing is all that arrives at the router. The kernel notes when, and keeps it until somebody asks.
type hearing struct {
	t      testing.TB
	socket int
}

// hearBFD listens to what arrives at the router until the test ends.
func (r *router) hearBFD() *hearing {
	r.t.Helper()
	h := &hearing{r.t, -1}
	r.inside(func() {
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // as it is on the wire
		var err error
		if h.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err != nil {
			r.t.Error(err)
			return
		}
		if err := unix.SetsockoptInt(h.socket, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(func() { _ = unix.Close(h.socket) })
	return h
}

// last is when the last packet of BFD came.
func (h *hearing) last() (last time.Time) {
	h.t.Helper()
	packet, control := make([]byte, 2048), make([]byte, unix.CmsgSpace(16))
	for {
		n, controls, _, from, err := unix.Recvmsg(h.socket, packet, control, 0)
		if err != nil {
			return last
		}
		way, _ := from.(*unix.SockaddrLinklayer)
		messages, err := unix.ParseSocketControlMessage(control[:controls])
		if err != nil || len(messages) == 0 || way == nil {
			h.t.Fatalf("the kernel does not note when a packet came: %v, %v", messages, err)
		}
		if way.Pkttype == unix.PACKET_OUTGOING || !isBFD(packet[:n]) {
			continue
		}
		note := messages[0].Data // struct timespec
		last = time.Unix(int64(binary.NativeEndian.Uint64(note)), int64(binary.NativeEndian.Uint64(note[8:])))
	}
}

// isBFD tells whether an IP packet is a control packet of BFD, of one hop or several.
func isBFD(ip []byte) bool {
	if len(ip) < 1 {
		return false
	}
	header, protocol := 40, 6
	if ip[0]>>4 == 4 {
		header, protocol = int(ip[0]&15)*4, 9
	}
	if len(ip) < header+8 || ip[protocol] != unix.IPPROTO_UDP {
		return false
	}
	to := binary.BigEndian.Uint16(ip[header+2:])
	return to == 3784 || to == 4784
}

// inside runs something in the router's network.
func (r *router) inside(do func()) {
	r.t.Helper()
	ns, err := netns.GetFromName(r.ns)
	if err != nil {
		r.t.Fatal(err)
	}
	defer ns.Close()
	if err := netlab.Inside(ns, do); err != nil {
		r.t.Error(err)
	}
}
