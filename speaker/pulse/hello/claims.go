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
)

// Claim is what a node says of an address on which nodes do not agree.
type Claim struct {
	Address netip.Addr
	Stance  Stance
	// Epoch grows with each time that the address is taken; see Mesh.Advance. With LeftTo it is NumberOf the node.
	Epoch uint64
	// Again is of the node that claims only, and not told: one that differs in it is told anew.
	Again uint64
}

const (
	additionClaims = 4
	epochSize      = 8
	claimSize      = 1 + 16 + epochSize
	// additionHas is how many claims an addition has room for, the length of which is a byte.
	additionHas = (255 - epochSize) / claimSize
	// maxClaims is how many claims a hello has at most, in several additions. Who has more to say
	// takes turns.
	maxClaims = 4 * additionHas
	// AtOnce is how many claims each hello of a node has, if there are no more. A node with more to say takes turns.
	AtOnce = maxClaims / 2
	// recordClaims are how many further ones the next turn of a record begins after.
	recordClaims = additionHas - 1
	// newsEvery is the time between hellos that are sent for the sake of claims not told twice yet.
	newsEvery = 2 * time.Millisecond
	// claimTurn is the time between hellos, and recordTurn between records, while there are more
	// claims than one has room for.
	claimTurn  = 50 * time.Millisecond
	recordTurn = 100 * time.Millisecond
	// claimsHold is for how long a claim is known after it was told. It is longer than a hello takes
	// to come, so that who reads views reads all claims.
	claimsHold = 250 * time.Millisecond
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
	if nodes > fullMesh {
		return time.Duration(claims/recordClaims+1) * recordTurn
	}
	return time.Duration(claims/AtOnce+1) * claimTurn // a hello may have room for less
}

// assertions are the claims of this node, and which of them the others were told.
type assertions struct {
	all   []Claim // each address once
	told  map[netip.Addr]Claim
	fresh []Claim   // those of all that were not told yet
	once  []Claim   // those that were told once, and had better be told again before all others
	next  int       // of all, to be told again
	since time.Time // when there was something to tell, of which turns are counted
}

// set takes over what is to be told, and tells whether anything is new.
func (s *assertions) set(now time.Time, claims []Claim) (news bool) {
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
	if len(s.all) == 0 {
		s.since = now
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
	now = append(now, again...)
	for range s.all {
		if len(now) == most {
			break
		}
		c := s.all[s.next%len(s.all)]
		if s.next++; !slices.Contains(now, c) {
			now = append(now, c)
		}
	}
	return now
}

// turn is what a record says then, which does not change but with time.
func (s *assertions) turn(now time.Time) []Claim {
	if len(s.all) <= recordClaims {
		return s.all
	}
	at := int(now.Sub(s.since)/recordTurn) * recordClaims % len(s.all)
	return slices.Concat(s.all[at:], s.all[:at])[:min(len(s.all), maxClaims)]
}

// hearsay is what a node has claimed lately.
type hearsay map[netip.Addr]assertion

type assertion struct {
	Claim

	until time.Time
}

// take takes in what a node claims now, and gives all that it has claimed lately, sorted.
func (h *hearsay) take(now time.Time, claims []Claim) []Claim {
	if len(claims) == 0 && len(*h) == 0 {
		return nil
	}
	if *h == nil {
		*h = hearsay{}
	}
	maps.DeleteFunc(*h, func(_ netip.Addr, a assertion) bool { return !now.Before(a.until) })
	for _, c := range claims {
		if _, known := (*h)[c.Address]; known || len(*h) < maxHeard {
			(*h)[c.Address] = assertion{c, now.Add(claimsHold)}
		}
	}
	all := make([]Claim, 0, len(*h))
	for _, a := range *h {
		all = append(all, a.Claim)
	}
	slices.SortFunc(all, func(a, b Claim) int { return a.Address.Compare(b.Address) })
	return all
}

// fits is how many claims there is room for in so many bytes, in additions that have the epoch each.
func fits(room int) int {
	const whole = additionHead + epochSize + additionHas*claimSize
	n := max(room, 0) / whole * additionHas
	if rest := room%whole - additionHead - epochSize; rest > 0 {
		n += rest / claimSize
	}
	return min(n, maxClaims)
}

// claiming are the additions that have the epoch of the node, and as many of its claims as
// there is room for; nothing while there are none and no node ever took an address.
func (h hello) claiming(room int) []byte {
	if h.epoch == 0 && len(h.claims) == 0 || room < additionHead+epochSize {
		return nil
	}
	claims := h.claims[:min(len(h.claims), fits(room))]
	var b []byte
	for begun := false; !begun || len(claims) > 0; begun = true {
		some := claims[:min(len(claims), additionHas)]
		claims = claims[len(some):]
		b = append(b, additionClaims, byte(epochSize+claimSize*len(some)))
		b = binary.BigEndian.AppendUint64(b, h.epoch)
		for _, c := range some {
			a := c.Address.As16()
			b = append(b, byte(c.Stance))
			b = append(b, a[:]...)
			b = binary.BigEndian.AppendUint64(b, c.Epoch)
		}
	}
	return b
}

// claimed reads one of these additions.
func (h hello) claimed(addition []byte) hello {
	if len(addition) < epochSize || (len(addition)-epochSize)%claimSize != 0 {
		return h
	}
	h.epoch = max(h.epoch, binary.BigEndian.Uint64(addition))
	for c := range slices.Chunk(addition[epochSize:], claimSize) {
		claim := Claim{
			Address: netip.AddrFrom16([16]byte(c[1:17])).Unmap(), Stance: Stance(c[0]),
			Epoch: binary.BigEndian.Uint64(c[17:]),
		}
		if claim.Stance >= Answers && claim.Stance <= LeftTo && len(h.claims) < maxClaims {
			h.claims = append(h.claims, claim)
		}
	}
	return h
}

// LowestEpoch is lower than all that Advance begins.
const LowestEpoch = 1

// advance is the epoch of what is taken now: higher than all that was heard of.
func (m *machine) advance() uint64 {
	m.epoch = m.nextEpoch()
	return m.epoch
}

func (m *machine) nextEpoch() uint64 { return max(m.epoch, LowestEpoch) + 1 }

// Advance begins an epoch, which is higher than any that this node has heard of: all nodes
// tell theirs in every hello (a Lamport clock). So who takes an address over from a node that
// it has heard has the higher epoch.
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

// claimsDue is when a round leaves before its time because of claims; zero: not.
func (m *machine) claimsDue() time.Time {
	switch {
	case m.mesh.on || len(m.claims.all) == 0:
		return time.Time{} // in a sparse mesh they are in records
	case len(m.claims.fresh)+len(m.claims.once) > 0:
		return m.own.left.Add(newsEvery)
	case len(m.claims.all) > AtOnce:
		return m.own.left.Add(claimTurn)
	}
	return time.Time{}
}
