package bfd

import (
	"net/netip"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
)

// apartFor is for how long a node must have been without a network of the peer's until the peer is
// taken to be several hops away: longer than a cable is pulled for a moment, or an address renewed.
const apartFor = time.Minute

// ends are between whom packets go.
type ends struct{ peer, local netip.Addr }

// otherwise is the key of a session with the peer at the other distance.
func (k key) otherwise() key {
	k.multiHop = !k.multiHop
	return k
}

// distance is how far away a peer is taken to be, by whether it is on a network of the node.
type distance struct {
	far   bool
	apart time.Time // since when it is on none although it is taken to be near; zero: it is not so
}

// measured is the distance after a look at the network, where the peer is near or is not. A
// session that is up shows that the peer has it at the same distance, whatever the network says.
func (d distance) measured(now time.Time, near, up bool) distance {
	switch {
	case up || d.far != near:
		return distance{far: d.far}
	case near:
		return distance{}
	case d.apart.IsZero():
		return distance{apart: now}
	case now.Sub(d.apart) < apartFor:
		return d
	default:
		return distance{far: true}
	}
}

// measure finds the distances of the peers that are wanted at that of the network.
func (s *Sessions) measure(now time.Time, want map[string]desired.BFD, have *links.Snapshot) {
	distances := map[ends]distance{}
	for _, w := range want {
		if !w.HopsByNetwork {
			continue
		}
		between := ends{w.Peer, w.Local}
		if _, done := distances[between]; done {
			continue
		}
		before, known := s.distances[between]
		switch {
		case have == nil && known:
			distances[between] = before
		case have == nil:
		case known:
			held := s.all[key{w.Peer, w.Local, before.far}]
			d := before.measured(now, have.Connects(w.Peer), held != nil && held.machine.state == Up)
			if distances[between] = d; d.far != before.far {
				s.log.Info("BFD with a peer goes by another distance, as the networks of the node have changed", "peer", w.Peer, "multihop", d.far)
			}
		default:
			distances[between] = distance{far: !have.Connects(w.Peer)}
		}
	}
	s.distances = distances
}

// measureAgain has Set called when a peer that is on no network of the node any more may be far.
func (s *Sessions) measureAgain() {
	for _, d := range s.distances {
		if at := d.apart.Add(apartFor); !d.apart.IsZero() && (s.again.IsZero() || at.Before(s.again)) {
			s.again = at
		}
	}
}

// placed is the session that is wanted, at the distance that its peer has; not known: it has none yet.
func (s *Sessions) placed(w desired.BFD) (_ desired.BFD, known bool) {
	if !w.HopsByNetwork {
		return w, true
	}
	d, known := s.distances[ends{w.Peer, w.Local}]
	if w.MultiHop = d.far; !d.far {
		w.MinTTL = 0
	}
	return w, known
}
