package main

import (
	"context"
	"os"
	"runtime/debug"

	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
)

// garbage is how much may gather until it is collected, in percent of what lives. A
// speaker holds the cluster for days and allocates little for a change: Go's own 100 %
// would take memory from every node to save some milliseconds of a CPU a minute.
const garbage = 50

// collectSooner sets that, unless the environment says GOGC.
func collectSooner() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
}

// settling gives back to the system, once, what reading the cluster and writing all of
// its rules took for a moment.
type settling struct {
	agent.Forwarder
	settled bool
}

// Apply implements agent.Forwarder.
func (s *settling) Apply(ctx context.Context, want desired.Forwarding) (desired.Missing, error) {
	missing, err := s.Forwarder.Apply(ctx, want)
	if err == nil && !s.settled {
		s.settled = true
		go debug.FreeOSMemory() // it takes the time of a collection, which nobody is to wait for
	}
	return missing, err
}
