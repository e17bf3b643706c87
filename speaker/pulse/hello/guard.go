package hello

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// strangersMost is how many datagrams a second may be of no node before the kernel is to leave most of them out:
	// several times what all nodes send that have another key.
	strangersMost = 2000
	// strangersPart is the part of the datagrams from addresses of no node that is heard then. A node that sends from
	// an address which is not in its status is heard that often, until its first hello is believed.
	strangersPart = 64
	// strangersLess is the part where that is too many still: of hundreds of thousands a second.
	strangersLess = strangersPart * strangersPart
	// strangersOver is for how long few must have come for all to be heard again.
	strangersOver = time.Minute
	// maxSources bounds the addresses of nodes that are not in their status.
	maxSources = 256
)

// filtering is a Transport of which the kernel can leave out most of what does not come from these addresses.
type filtering interface {
	// Filter has all but one in part datagrams of other senders be dropped, a power of two; none if there are no
	// addresses.
	Filter(nodes []netip.Addr, part int) error
}

// guard gives strangers a budget: any pod can send to the port of the hellos, and what it sends is taken before all
// other processes get their turn, and while hellos wait. Which datagram is a node's only its MAC tells, but where it
// comes from the kernel can tell for little.
type guard struct {
	peers     map[string]Peer
	sources   map[netip.Addr]bool // of hellos that were believed, which are in no status
	second    time.Time           // in which are counted
	strangers int                 // the datagrams of no node
	on        bool
	part      int       // that is heard while on
	began     time.Time // when it was on first
	flooded   time.Time // when there were too many last
	stale     bool      // the filter is to be set
	told      bool      // the log has that it is on
}

// takes takes in which nodes there are.
func (g *guard) takes(peers map[string]Peer) {
	if !maps.EqualFunc(peers, g.peers, func(a, b Peer) bool { return slices.Equal(a.Addrs, b.Addrs) }) {
		g.peers, g.stale = maps.Clone(peers), g.stale || g.on
	}
}

// took takes in that a datagram has come, and whether it was one of a node.
func (g *guard) took(now time.Time, from netip.Addr, ofNode bool) {
	if ofNode {
		if g.on && !g.knows(from) && len(g.sources) < maxSources {
			if g.sources == nil {
				g.sources = map[netip.Addr]bool{}
			}
			g.sources[from], g.stale = true, true
		}
		return
	}
	g.strangers++
	switch {
	case g.strangers <= g.budget():
		return
	case !g.on:
		g.on, g.part, g.began, g.stale = true, strangersPart, now, true
	case g.strangers > strangersMost && g.part < strangersLess && g.second.After(g.began): // none of these was queued before
		g.part, g.stale = strangersLess, true
	}
	g.flooded = now
}

// budget is how many strangers a second are too many, of those that are heard.
func (g *guard) budget() int {
	if g.on {
		return max(strangersMost/g.part, 1)
	}
	return strangersMost
}

func (g *guard) knows(a netip.Addr) bool {
	if g.sources[a] {
		return true
	}
	for _, p := range g.peers {
		if slices.Contains(p.Addrs, a) {
			return true
		}
	}
	return false
}

// pass counts anew each second, and hears all again once there are few.
func (g *guard) pass(now time.Time) {
	if now.Sub(g.second) >= time.Second {
		g.second, g.strangers = now, 0
	}
	if g.on && now.Sub(g.flooded) > strangersOver {
		g.on, g.stale, g.sources = false, true, nil
	}
}

// nodes are the addresses from which all is to be heard; none: from all.
func (g *guard) nodes() []netip.Addr {
	if !g.on {
		return nil
	}
	all := slices.Collect(maps.Keys(g.sources))
	for _, p := range g.peers {
		all = append(all, p.Addrs...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// ofStrangers counts the datagrams that were no hellos of a node with our key.
func (m *Mesh) ofStrangers() uint64 {
	r := m.state.stats.Rejected
	return r[ReasonMagic] + r[ReasonVersion] + r[ReasonMAC]
}

// guarded has the kernel leave out what it is to, if that has changed. It needs mu.
func (m *Mesh) guarded(now time.Time, transport Transport) {
	m.guard.pass(now)
	if !m.guard.stale {
		return
	}
	m.guard.stale = false
	t, can := transport.(filtering)
	if !can {
		return
	}
	if err := t.Filter(m.guard.nodes(), m.guard.part); err != nil {
		m.cfg.Log.Error("cannot have the kernel leave out what strangers send to the port of the hellos", "err", err)
	}
	switch was := m.guard.told; {
	case m.guard.on && !was:
		m.cfg.Log.Warn("the port of the hellos is flooded by senders that are no nodes; the kernel leaves out all but a part of what they send", "port", m.cfg.Port, "part", m.guard.part)
	case !m.guard.on && was:
		m.cfg.Log.Info("the port of the hellos is flooded no more", "port", m.cfg.Port)
	}
	m.guard.told = m.guard.on
}

// Offsets into what the filter of a UDP socket sees, which begins with the UDP header, and into the IP header before
// it (SKF_NET_OFF of linux/filter.h).
const (
	offsetPort    = 0
	offsetIP      = 0xfff00000
	offsetSource4 = offsetIP + 12
	offsetSource6 = offsetIP + 8
)

// nodesOnly is a filter that lets pass what comes from that port of the addresses, and a part of all else. What a pod
// sends by the address of its node comes from another port: the hellos of the node have this one. Of an IPv6 address
// it looks at the exclusive or of its words, so that a thousand nodes have room in a filter.
func nodesOnly(port uint16, nodes []netip.Addr, part int) []bpf.Instruction {
	var v4, v6 []uint32
	for _, a := range nodes {
		if a.Is4() {
			v4 = append(v4, binary.BigEndian.Uint32(a.AsSlice()))
			continue
		}
		v6 = append(v6, folded(a.As16()))
	}
	const frame = 24 // instructions beside those that compare addresses
	room := (unix.BPF_MAXINSNS - frame) / 2
	v4 = v4[:min(len(v4), room/2)]
	v6 = v6[:min(len(v6), room/2)]
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetPort, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(port), SkipTrue: 1},
		bpf.Jump{}, // to the part; see below
		bpf.LoadAbsolute{Off: offsetIP, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 4, SkipTrue: 1},
		bpf.Jump{Skip: uint32(1 + 2*len(v4) + 1)}, // to those of IPv6
		bpf.LoadAbsolute{Off: offsetSource4, Size: 4},
	}
	compare := func(words []uint32) {
		for _, word := range words {
			program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: word, SkipTrue: 1}, bpf.RetConstant{Val: math.MaxUint32})
		}
	}
	compare(v4)
	fold := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetSource6, Size: 4}}
	for word := range uint32(3) {
		fold = append(fold, bpf.TAX{}, bpf.LoadAbsolute{Off: offsetSource6 + 4*(word+1), Size: 4}, bpf.ALUOpX{Op: bpf.ALUOpXor})
	}
	program = append(program, bpf.Jump{Skip: uint32(len(fold) + 2*len(v6))})
	program = append(program, fold...)
	compare(v6)
	program[2] = bpf.Jump{Skip: uint32(len(program) - 3)}
	return append(program,
		bpf.LoadExtension{Num: bpf.ExtRand},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: uint32(part - 1), SkipFalse: 1},
		bpf.RetConstant{Val: math.MaxUint32},
		bpf.RetConstant{Val: 0},
	)
}

// folded is the exclusive or of the words of an address.
func folded(a [16]byte) (word uint32) {
	for i := range 4 {
		word ^= binary.BigEndian.Uint32(a[4*i:])
	}
	return word
}

// Filter has the kernel drop what comes from other addresses than these, but one in part; with none it drops nothing.
// It returns an error if the kernel takes no filter.
func (t *udp) Filter(nodes []netip.Addr, part int) error {
	var program []bpf.RawInstruction
	if len(nodes) > 0 {
		var err error
		if program, err = bpf.Assemble(nodesOnly(t.port, nodes, part)); err != nil {
			return fmt.Errorf("assemble the filter: %w", err)
		}
	}
	var failed error
	err := t.raw.Control(func(fd uintptr) {
		if len(program) == 0 {
			if failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); errors.Is(failed, unix.ENOENT) {
				failed = nil
			}
			return
		}
		filter := make([]unix.SockFilter, len(program))
		for i, p := range program {
			filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
		}
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	return errors.Join(err, failed)
}
