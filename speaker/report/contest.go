package report

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Reasons of the Events on a Service with an address that a station has which is no node's.
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
	Since     time.Time
	Withheld  bool // this node does not answer for the address
}

// Reason is that of the Event, and of the condition.
func (c Contest) Reason() string {
	if c.Withheld {
		return ReasonAddressTaken
	}
	return ReasonAddressContested
}

// Message tells of the contest of an address of the node, and what to do about it.
func (c Contest) Message(node string, address netip.Addr) string {
	if c.Withheld {
		return fmt.Sprintf("node %s does not answer for %s: the station %s on %s has it already; "+
			"take the address from that machine, or out of the pool; it is tried again every 5 seconds",
			node, address, c.Station, c.Interface)
	}
	return fmt.Sprintf("%s, which node %s answers for, is also claimed by the station %s on %s, so that clients may reach that one: "+
		"take the address from that machine, or out of the pool",
		address, node, c.Station, c.Interface)
}

// Contests takes in the addresses of this node that strangers have, and those of other
// nodes about which this one has doubts.
func (r *Reporter) Contests(contested map[netip.Addr]Contest, doubted map[netip.Addr]Doubt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notes != nil { // also that there are none, which an earlier process may not have known
		r.notes.Tell(doubted)
	}
	if maps.Equal(contested, r.contested) && maps.Equal(doubted, r.doubted) {
		return
	}
	r.contested, r.doubted = contested, doubted
	r.tellProblems()
	r.tellAddresses()
}

// contests are the problems of the Services with such addresses.
func (r *Reporter) contests() []problem.Problem {
	if len(r.contested)+len(r.doubted) == 0 || r.cluster == nil {
		return nil
	}
	var problems []problem.Problem
	for _, s := range r.cluster.Services {
		for _, address := range s.VIPs {
			if c, is := r.contested[address]; is {
				problems = append(problems, r.contest(s, address, c))
			}
			if d, is := r.doubted[address]; is {
				problems = append(problems, r.doubt(s, address, d))
			}
		}
	}
	return problems
}

// contest is the problem of one Service.
func (r *Reporter) contest(s *view.Service, address netip.Addr, c Contest) problem.Problem {
	if c.Withheld {
		return problem.New(s.Object(), c.Reason(), "%s", c.Message(r.node, address))
	}
	return problem.Advice(s.Object(), c.Reason(), "%s", c.Message(r.node, address))
}

// doubt is the problem of one Service.
func (r *Reporter) doubt(s *view.Service, address netip.Addr, d Doubt) problem.Problem {
	return problem.Advice(s.Object(), d.Reason(), "%s", d.Message(r.node, address))
}

// affair is a group of reasons after which a Normal Event follows when none of them is left.
type affair struct {
	reasons []string
	over    string // the reason of that Event
	note    string // with the node's name
}

func affairs() []affair {
	return []affair{
		{
			[]string{ReasonAddressContested, ReasonAddressTaken},
			ReasonAddressUncontested,
			"node %s hears no other station claim the addresses of this Service any more",
		},
		{
			[]string{ReasonAddressUnanswered, ReasonAddressAnsweredElsewhere, ReasonAddressAnsweredTwice},
			ReasonAddressAnswered,
			"node %s finds the addresses of this Service answered for as they should be, or has no more to do with them",
		},
		{
			[]string{ReasonAddressLeft},
			ReasonAddressAgreed,
			"node %s agrees with the others on who answers for the addresses of this Service",
		},
	}
}

// contestEvent writes the Event of a problem with an address that has come or gone.
func (r *Reporter) contestEvent(p problem.Problem, gone bool) {
	of := affairs()
	i := slices.IndexFunc(of, func(a affair) bool { return slices.Contains(a.reasons, p.Reason) })
	if i < 0 || r.cluster == nil {
		return
	}
	s := r.cluster.Services[view.Ref{Namespace: p.Object.Namespace, Name: p.Object.Name}]
	switch {
	case s == nil:
	case !gone:
		r.event(serviceReference(s), corev1.EventTypeWarning, p.Reason, "%s", p.Message)
	case !slices.ContainsFunc(r.problems, func(o problem.Problem) bool {
		return o.Object == p.Object && slices.Contains(of[i].reasons, o.Reason)
	}):
		r.event(serviceReference(s), corev1.EventTypeNormal, of[i].over, of[i].note, r.node)
	}
}
