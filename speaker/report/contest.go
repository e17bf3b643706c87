package report

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Reasons of the Events on a Service with an address that a stranger has.
const (
	// ReasonAddressContested: a station that is no node's has the address, too.
	ReasonAddressContested = "AddressContested"
	// ReasonAddressTaken: such a station had it first, and no node answers for it.
	ReasonAddressTaken = "AddressTaken"
	// ReasonAddressUncontested: it is heard no more.
	ReasonAddressUncontested = "AddressUncontested"
)

// Contest is an address of this node that a station has which is no node's.
type Contest struct {
	Station   string // its MAC
	Interface string
	Withheld  bool // this node does not answer for the address
}

// Contests takes in the addresses of this node that strangers have.
func (r *Reporter) Contests(contested map[netip.Addr]Contest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if maps.Equal(contested, r.contested) {
		return
	}
	r.contested = contested
	r.tellProblems()
}

// contests are the problems of the Services with contested addresses.
func (r *Reporter) contests() []problem.Problem {
	if len(r.contested) == 0 || r.cluster == nil {
		return nil
	}
	var problems []problem.Problem
	for _, s := range r.cluster.Services {
		for _, address := range s.VIPs {
			if c, is := r.contested[address]; is {
				problems = append(problems, r.contest(s, address, c))
			}
		}
	}
	return problems
}

// contest is the problem of one Service.
func (r *Reporter) contest(s *view.Service, address netip.Addr, c Contest) problem.Problem {
	if c.Withheld {
		return problem.New(s.Object(), ReasonAddressTaken,
			"node %s does not answer for %s: the station %s on %s has it already; "+
				"take the address from that machine, or out of the pool; it is tried again every 5 seconds",
			r.node, address, c.Station, c.Interface)
	}
	return problem.Advice(s.Object(), ReasonAddressContested,
		"%s, which node %s answers for, is also claimed by the station %s on %s, so that clients may reach that one: "+
			"take the address from that machine, or out of the pool",
		address, r.node, c.Station, c.Interface)
}

// contestEvent writes the Event of a problem with a contested address that has come or gone.
func (r *Reporter) contestEvent(p problem.Problem, gone bool) {
	if p.Reason != ReasonAddressContested && p.Reason != ReasonAddressTaken || r.cluster == nil {
		return
	}
	s := r.cluster.Services[view.Ref{Namespace: p.Object.Namespace, Name: p.Object.Name}]
	switch {
	case s == nil:
	case !gone:
		r.event(serviceReference(s), corev1.EventTypeWarning, p.Reason, "%s", p.Message)
	case !slices.ContainsFunc(r.problems, func(o problem.Problem) bool {
		return o.Object == p.Object && (o.Reason == ReasonAddressContested || o.Reason == ReasonAddressTaken)
	}):
		r.event(serviceReference(s), corev1.EventTypeNormal, ReasonAddressUncontested,
			"node %s hears no other station claim the addresses of this Service any more", r.node)
	}
}
