package bfd

import (
	"errors"
	"maps"
)

// Reason says why a datagram was not taken for a session's.
type Reason string

// The reasons.
const (
	RejectedMalformed Reason = "malformed"     // no BFD control packet
	RejectedAuth      Reason = "authenticated" // it asks for authentication, of which there is none here
	RejectedHops      Reason = "ttl"           // it came over more hops than it may
	RejectedUnknown   Reason = "unknown"       // for no session of ours
)

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{RejectedMalformed, RejectedAuth, RejectedHops, RejectedUnknown}
}

func reasonOf(err error) Reason {
	if errors.Is(err, errAuth) {
		return RejectedAuth
	}
	return RejectedMalformed
}

// Counts are those of one session since it was begun.
type Counts struct {
	Up             bool
	Received, Sent uint64 // control packets
	Ups, Downs     uint64 // how often it came up, and was up no more
}

// Stats are the counts by name of session, and of what was rejected.
func (s *Sessions) Stats() (map[string]Counts, map[Reason]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]Counts, len(s.names))
	for name, k := range s.names {
		have := s.all[k]
		counts[name] = Counts{
			Up: have.machine.state == Up, Received: have.received, Sent: have.sent,
			Ups: have.machine.ups, Downs: have.machine.downs,
		}
	}
	rejected := make(map[Reason]uint64, len(s.rejected))
	maps.Copy(rejected, s.rejected)
	return counts, rejected
}
