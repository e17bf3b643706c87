package bfd

import (
	"time"

	"fairlead.dev/fairlead/internal/signal"
)

// hear takes in a datagram. The network calls it with mu held.
func (s *Sessions) hear(d datagram) {
	have, p, reason := s.find(d)
	if have == nil {
		s.rejected[reason]++
		return
	}
	have.received++
	now := time.Now()
	s.change(now, have, func(m *machine) []Packet { return m.receive(now, p) })
	signal.Send(s.wake)
}

// find looks for the session of a datagram: by our discriminator if it has one,
// else by addresses (RFC 5881, 3; RFC 5883, 4).
func (s *Sessions) find(d datagram) (*session, Packet, Reason) {
	if !d.kind.multiHop && d.hops != maxHops {
		return nil, Packet{}, RejectedHops
	}
	p, err := Parse(d.body)
	if err != nil {
		return nil, p, reasonOf(err)
	}
	var found *session
	for k, have := range s.all {
		if !k.meets(d) || k.peer.Zone() != "" && (have.out == nil || have.out.over() != d.zone) {
			continue
		}
		if p.Your != 0 {
			if p.Your != have.machine.local {
				continue
			}
			found = have
			break
		}
		if found == nil || k.local.IsValid() { // which comes before one with any address of ours
			found = have
		}
	}
	switch {
	case found == nil:
		return nil, p, RejectedUnknown
	case d.hops < int(found.want.MinTTL):
		return nil, p, RejectedHops
	}
	return found, p, ""
}
