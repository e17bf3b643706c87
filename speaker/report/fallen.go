package report

import (
	"maps"
	"time"
)

// Witness marks what nodes have said of themselves and what is true no more, since they are
// not heard any longer.
type Witness interface {
	// Silent takes in all nodes for which this one has to speak, and when each of them fell
	// silent. It does not wait.
	Silent(nodes map[string]time.Time)
}

// tellFallen hands on which nodes are believed to be dead, if it is this node that speaks
// for all. Others do it when this one dies, too.
func (r *Reporter) tellFallen() {
	if r.witness == nil {
		return
	}
	maps.DeleteFunc(r.fallen, func(node string, _ time.Time) bool { _, still := r.cluster.Fallen[node]; return !still })
	for node := range r.cluster.Fallen {
		if _, known := r.fallen[node]; !known {
			r.fallen[node] = time.Now()
		}
	}
	if r.first() {
		r.witness.Silent(maps.Clone(r.fallen))
	} else {
		r.witness.Silent(nil)
	}
}
