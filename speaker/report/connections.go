package report

import "fairlead.dev/fairlead/internal/problem"

// ReasonConnectionTableFull is on a Node: its kernel soon refuses new connections, or does already.
const ReasonConnectionTableFull = "ConnectionTableFull"

// Of how many hundredths of its room the connection table is called full, and not full any more.
const (
	full  = 90
	eased = 80
)

// Connections takes in how many flows the connection table of this node has, and has room for.
func (r *Reporter) Connections(flows, room int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bound := full
	if len(r.connections) > 0 {
		bound = eased
	}
	r.connections = nil
	if room > 0 && 100*flows >= bound*room {
		r.connections = []problem.Problem{problem.New(problem.Object{Kind: "Node", Name: r.node}, ReasonConnectionTableFull,
			"the kernel's connection table, which has room for %d flows, is full or nearly so; once it is, the first packets of new connections are dropped, "+
				"those to Services among them: find out who has so many (conntrack -L), set a larger Helm value forwarding.conntrack.maxPerCore, "+
				"or net.netfilter.nf_conntrack_max on the node", room)}
	}
	r.tellProblems()
}
