package main

import (
	"os"
	"runtime/debug"
)

// garbage is how much may gather until it is collected, in percent of what lives, once a
// speaker has settled. It holds the cluster for days and allocates little for a change:
// Go's own 100 % would take memory from every node to save some milliseconds of a CPU a
// minute.
const garbage = 50

// giveMemoryBack returns to the system what reading the cluster and writing all of its rules took for a
// moment, and has garbage collected sooner from then on, unless the environment says GOGC. Before that
// nothing slows the node's first rules down.
func giveMemoryBack() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	debug.FreeOSMemory()
}
