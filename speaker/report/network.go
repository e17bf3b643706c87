package report

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
)

const (
	// ReasonCutOff is on a Node that hears no more than half of the others and gets no answer from
	// its gateway: it answers for no address.
	ReasonCutOff = "CutOff"
	// ReasonLinkCutOff is on a Node that hears no other one over an interface on which others hear
	// each other: it answers for no address there.
	ReasonLinkCutOff = "LinkCutOff"
	// ReasonDamped is on a Node that died again and again: it comes last among the candidates for a while.
	ReasonDamped = "Damped"
	// ReasonAddressLeft is on a Service: its address is this node's as far as this one knows,
	// and left to another node, which answers for it.
	ReasonAddressLeft = "AddressLeft"
	// ReasonAddressAgreed follows when that is over.
	ReasonAddressAgreed = "AddressAgreed"
)

// Network is what this node hears and does not hear of the others on its networks.
type Network struct {
	CutOff []netip.Addr          // gateways that do not answer, of a node that is cut off; sorted
	Left   map[netip.Addr]string // addresses of this node that are left to another one
	Links  []string              // interfaces over which no node is heard, though others hear each other there
	Damped []string              // nodes that come last, as they died again and again
}

// Isolation takes in what this node hears of the others.
func (r *Reporter) Isolation(n Network) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(n.CutOff, r.network.CutOff) && maps.Equal(n.Left, r.network.Left) && slices.Equal(n.Links, r.network.Links) && slices.Equal(n.Damped, r.network.Damped) {
		return
	}
	r.network = n
	r.publishProblems()
}

// isolation returns the problems of a node that is cut off, or does not agree with others.
func (r *Reporter) isolation() []problem.Problem {
	var problems []problem.Problem
	if len(r.network.CutOff) > 0 {
		problems = append(problems, problem.New(r.self(), ReasonCutOff,
			"node %s answers for no address: it hears no more than half of the nodes that it heard, and its gateway %s does not answer; "+
				"see to its cable, its switch and its VLAN; it goes on by itself once it hears the nodes or the gateway",
			r.node, strings.Join(addr.Texts(r.network.CutOff), ", ")))
	}
	if len(r.network.Links) > 0 {
		problems = append(problems, problem.New(r.self(), ReasonLinkCutOff,
			"node %s hears no other node over %s, though others hear each other there: what it would answer for there is left to them where they can; "+
				"see to the cable, the VLAN and the port of the switch; it goes on by itself once it hears a node",
			r.node, strings.Join(r.network.Links, ", ")))
	}
	if slices.Contains(r.network.Damped, r.node) {
		problems = append(problems, problem.New(r.self(), ReasonDamped,
			"node %s fell silent again and again, and other nodes that can answer for an address come before it until it has been there for a while; "+
				"see to its cable, the port of the switch, its power, and the log of its container pulse", r.node))
	}
	if len(r.network.Left) == 0 || r.cluster == nil {
		return problems
	}
	for _, s := range r.cluster.Services {
		for _, address := range s.VIPs {
			if node, is := r.network.Left[address]; is {
				problems = append(problems, problem.Advice(s.Object(), ReasonAddressLeft,
					"%s is node %s's to answer for as far as that knows, and is left to node %s, which answers for it: "+
						"see whether both reach the API server, and whether UDP port 7475 is open between them",
					address, r.node, node))
			}
		}
	}
	return problems
}
