package main

import (
	"context"
	"os"
	"runtime/debug"

	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// garbage is how much may gather until it is collected, in percent of what lives, once a
// speaker has settled. It holds the cluster for days and allocates little for a change:
// Go's own 100 % would take memory from every node to save some milliseconds of a CPU a
// minute.
const garbage = 50

// settling gives back to the system, once, what reading the cluster and writing all of
// its rules took for a moment, and has garbage collected sooner from then on, unless the
// environment says GOGC. Until then nothing slows the node's first rules down.
type settling struct {
	agent.Forwarder
	settled bool
}

// Apply implements agent.Forwarder.
func (s *settling) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	missing, err := s.Forwarder.Apply(ctx, want)
	if err == nil && !s.settled {
		s.settled = true
		go settle() // it takes the time of a collection, which nobody is to wait for
	}
	return missing, err
}

func settle() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	debug.FreeOSMemory()
}
