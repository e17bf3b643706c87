package hello

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Stance is what a node says of an address that another one answers for, too.
type Stance uint8

// The stances. Unknown ones, of later releases, are left out when a hello is read.
const (
	Answers     Stance = iota + 1 // it answers
	Leaves                        // it would, and leaves it to another one that has a higher epoch
	Stopped                       // it answered until a moment ago, and does not any more
	OnInterface                   // its kernel replies, since an interface has it, and it does not answer
	LeftTo                        // the node that Epoch is the number of has it, and keeps it
	Yields                        // it answers until another one does, which is to by its table
)

// Claim is what a node says of an address on which nodes do not agree.
type Claim struct {
	Address netip.Addr `cbor:"1,keyasint"`
	Stance  Stance     `cbor:"2,keyasint"`
	// Epoch grows with each time that the address is taken; see Mesh.Advance. With LeftTo it is NumberOf the node.
	Epoch uint64 `cbor:"3,keyasint,omitempty"`
	// Again is of the node that claims only, and not told: one that differs in it is told anew.
	Again uint64 `cbor:"-"`
}

const (
	// claimSize is how many bytes a claim has at most, and claimsHead those of all.
	claimSize  = 1 + 18 + 2 + 10
	claimsHead = 3
	// maxClaims is how many claims a hello has at most. A node that has more takes turns.
	maxClaims = 36
	// AtOnce is how many claims each hello has that leaves in a round, if there are no more. A node with more takes turns.
	AtOnce = maxClaims / 2
	// newsEvery is the time between hellos with claims to all nodes while some were not told twice yet, and
	// claimTurn between those to the nodes that get no hellos in rounds, among up to claimNodes nodes; it grows with their number.
	newsEvery  = 2 * time.Millisecond
	claimTurn  = 50 * time.Millisecond
	claimNodes = 50
	// claimsHold is for how many turns a claim is known after it was told. It is longer than a hello takes
	// to come, so that a reader of views reads all claims.
	claimsHold = 5
	// maxHeard bounds the claims that are known of a node.
	maxHeard = 1 << 14
)

// NumberOf is the number of a node by its name, for LeftTo.
func NumberOf(node string) uint64 {
	id := longIDOf(node)
	return binary.BigEndian.Uint64(id[:])
}

// TurnOf is the time in which a node among so many tells so many claims once more.
func TurnOf(claims, nodes int) time.Duration {
	return time.Duration(claims/AtOnce+1) * paced(claimTurn, nodes) // a hello may have room for less
}

// paced is a time between hellos to all of so many nodes.
func paced(t time.Duration, nodes int) time.Duration {
	return t * time.Duration(max(nodes, claimNodes)) / claimNodes
}

// assertions are the claims of this node, and which of them the others were told.
type assertions struct {
	all   []Claim // each address once
	told  map[netip.Addr]Claim
	fresh []Claim   // those of all that were not told yet
	once  []Claim   // those that were told once, and had better be told again before all others
	next  int       // of all, to be told again
	round int       // of all, to be told in the next round
	left  time.Time // when a hello with claims left last beside the rounds
}

// set takes over what is to be told, and tells whether anything is new.
func (s *assertions) set(claims []Claim) (news bool) {
	claims = slices.DeleteFunc(slices.Clone(claims), func(c Claim) bool { return !c.Address.IsValid() })
	if slices.Equal(claims, s.all) {
		return false
	}
	told := make(map[netip.Addr]Claim, len(claims))
	once := s.once
	s.fresh, s.once = nil, nil
	for _, c := range claims {
		if before, is := s.told[c.Address]; is && before == c {
			told[c.Address] = c
		} else {
			s.fresh = append(s.fresh, c)
		}
	}
	for _, c := range once {
		if told[c.Address] == c {
			s.once = append(s.once, c)
		}
	}
	s.all, s.told = claims, told
	return true
}

// tell gives so many claims to be told now: those that are new, those that were told once, and
// then others in turns.
func (s *assertions) tell(most int) []Claim {
	if most = min(most, len(s.all)); most == 0 {
		s.fresh, s.once = nil, nil // or this node would try again every other millisecond
	}
	now := slices.Clone(s.fresh[:min(most, len(s.fresh))])
	s.fresh = s.fresh[len(now):]
	again := s.once[:min(most-len(now), len(s.once))]
	s.once = append(slices.Clone(s.once[len(again):]), now...)
	for _, c := range now {
		s.told[c.Address] = c
	}
	return s.inTurn(&s.next, append(now, again...), most)
}

// inTurn adds the claims whose turn it is, until there are so many.
func (s *assertions) inTurn(next *int, now []Claim, most int) []Claim {
	for range s.all {
		if len(now) >= most {
			break
		}
		c := s.all[*next%len(s.all)]
		if *next++; !slices.Contains(now, c) {
			now = append(now, c)
		}
	}
	return now
}

// hearsay is what a node has claimed lately.
type hearsay map[netip.Addr]assertion

type assertion struct {
	Claim

	until time.Time
}

// take takes in what a node claims now, and gives all that it has claimed lately, sorted.
func (h *hearsay) take(now time.Time, hold time.Duration, claims []Claim) []Claim {
	if len(claims) == 0 && len(*h) == 0 {
		return nil
	}
	if *h == nil {
		*h = hearsay{}
	}
	maps.DeleteFunc(*h, func(_ netip.Addr, a assertion) bool { return !now.Before(a.until) })
	for _, c := range claims {
		if _, known := (*h)[c.Address]; known || len(*h) < maxHeard {
			(*h)[c.Address] = assertion{c, now.Add(hold)}
		}
	}
	all := make([]Claim, 0, len(*h))
	for _, a := range *h {
		all = append(all, a.Claim)
	}
	slices.SortFunc(all, func(a, b Claim) int { return a.Address.Compare(b.Address) })
	return all
}

// fits is how many claims there is room for in so many bytes.
func fits(room int) int { return min(max(room-claimsHead, 0)/claimSize, maxClaims) }

// LowestEpoch is lower than all that Advance begins.
const LowestEpoch = 1

// advance is the epoch of what is taken now: higher than all that was heard of.
func (m *machine) advance() uint64 {
	m.epoch = m.nextEpoch()
	return m.epoch
}

func (m *machine) nextEpoch() uint64 { return max(m.epoch, LowestEpoch) + 1 }

// Advance begins an epoch, which is higher than any that this node has heard of: all nodes
// tell theirs in every hello (a Lamport clock). So a node that takes an address over from one
// that it has heard has the higher epoch.
func (m *Mesh) Advance() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.advance()
}

// NextEpoch is the epoch that Advance would begin now.
func (m *Mesh) NextEpoch() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.nextEpoch()
}

// claimsDue is when a hello with claims is to leave beside the rounds; zero: there are none.
func (m *machine) claimsDue() time.Time {
	switch {
	case len(m.claims.all) == 0:
		return time.Time{}
	case m.claims.isNews():
		return m.claims.left.Add(paced(newsEvery, len(m.mesh.order)))
	}
	return m.claims.left.Add(paced(claimTurn, len(m.mesh.order)))
}

// isNews tells whether some claims were not told twice yet.
func (s *assertions) isNews() bool { return len(s.fresh)+len(s.once) > 0 }

// claimed is a hello with the claims whose turn it is.
func (m *machine) claimed(h hello) hello {
	if len(m.claims.all) > 0 {
		h.Claims = m.claims.inTurn(&m.claims.round, nil, fits(h.left()))
	}
	return h
}

// claiming is a hello with claims beside the rounds: to all nodes if some are new, since all of them may be concerned,
// and it would take longer if each passed them on; else to those that get no hellos in rounds, or seldom.
func (m *machine) claiming(now time.Time) outgoing {
	news := m.claims.isNews()
	m.claims.left = now
	var out outgoing
	for _, p := range m.mesh.order {
		if news || !p.isNear(now) || m.interval > claimTurn {
			out.to = append(out.to, p.addrs...)
		}
	}
	if len(out.to) > 0 {
		h := m.word(now, 0, 0)
		h.Claims = m.claims.tell(fits(h.left()))
		out.datagrams = m.sealed(h)
	}
	return out
}

// hearClaims takes over what a node claims, in a hello of it, and forgets what it has not claimed for some turns. What
// the former process of a node claimed holds with its word.
func (m *machine) hearClaims(now time.Time, p *peer, claims []Claim) {
	if p.withheld || len(claims) == 0 && len(p.claims) == 0 {
		return
	}
	hold := claimsHold * paced(claimTurn, len(m.mesh.order))
	if all := p.claims.take(now, hold, claims); !slices.Equal(all, p.said.Claims) {
		p.said.Claims = all
		m.touch()
	}
}

// expireClaims forgets what a node has not claimed for some turns that says hello seldom. A silent one may still have
// what it claimed: nodes that were parted and meet again have to know that.
func (m *machine) expireClaims(now time.Time, p *peer) {
	if p.alive && !p.isNear(now) && !now.Before(p.held) {
		m.hearClaims(now, p, nil)
	}
}
