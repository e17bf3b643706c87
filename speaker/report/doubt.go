package report

import (
	"fmt"
	"net/netip"
	"time"
)

// Reasons of the Events on a Service, and of the condition of the L2Address, with an address of
// which another node than the one that is to answer found that nobody does, or somebody else.
const (
	// ReasonAddressUnanswered: this node asked for it and did not hear the node that is to
	// answer, or no node is able to.
	ReasonAddressUnanswered = "AddressUnanswered"
	// ReasonAddressAnsweredElsewhere: another station answered, and the node that is to did not.
	ReasonAddressAnsweredElsewhere = "AddressAnsweredElsewhere"
	// ReasonAddressAnsweredTwice: another station answered besides the node that is to.
	ReasonAddressAnsweredTwice = "AddressAnsweredTwice"
	// ReasonAddressAnswered: now the node answers that is to, and no other.
	ReasonAddressAnswered = "AddressAnswered"
)

// Doubt is an address that another node is to answer for, and does not, or not alone; or
// that no node can answer for.
type Doubt struct {
	Owner string // the node that is to; empty if none can
	// Station is the MAC of the one that answers, empty if nobody does, and Node the node
	// that has it, empty if none does.
	Node, Station string
	Alone         bool // the node that is to was not heard besides
	// Interface is that of this node on which it asked. Where this node is the one that
	// answers, it is the interface that has the address.
	Interface string
	Since     time.Time
}

// Notes keeps, where people can read it, what this node doubts about addresses of others.
type Notes interface {
	// Tell takes in all doubts of this node. It does not wait, and writes to none.
	Tell(doubts map[netip.Addr]Doubt)
}

// Reason is that of the Event, and of the condition.
func (d Doubt) Reason() string {
	switch {
	case d.Station == "":
		return ReasonAddressUnanswered
	case d.Alone:
		return ReasonAddressAnsweredElsewhere
	}
	return ReasonAddressAnsweredTwice
}

// silence is what to do about a kernel that answers for an address.
func silence(address netip.Addr) string {
	if address.Is6() {
		return "take the address from the interface there that has it, or end the proxy (ip -6 neigh show proxy)"
	}
	return "see whether an interface there has the address: kube-proxy in IPVS mode needs strictARP, others the sysctls arp_ignore=1 and arp_announce=2"
}

// Message tells what the node found, and what to do about it.
func (d Doubt) Message(node string, address netip.Addr) string {
	if d.Owner == "" {
		return fmt.Sprintf("%s is answered for by nobody: the nodes that may have none of the interfaces that an L2Advertisement names, or none that is up "+
			"and on the network of the address, or lack its rules in the kernel; see spec.interfaces there and fairlead_pulse_unable_addresses",
			address)
	}
	asked := fmt.Sprintf("node %s asked for %s on %s, and ", node, address, d.Interface)
	while, reach := fmt.Sprintf("while node %s is to", d.Owner), "clients may reach either"
	if d.Alone {
		while, reach = fmt.Sprintf("while node %s, which is to, was not heard", d.Owner), "clients reach the wrong one"
	}
	switch {
	case d.Station == "":
		return asked + fmt.Sprintf("node %s, which is to answer, was not heard: clients may not reach the address either; "+
			"see whether a switch or a hypervisor between them drops frames for addresses that it did not assign, "+
			"or whether an interface there is wireless and not promiscuous", d.Owner)
	case d.Node == node:
		return fmt.Sprintf("the kernel of node %s answers for %s, which is on its interface %s, %s: %s; %s",
			node, address, d.Interface, while, reach, silence(address))
	case d.Node == "":
		return asked + fmt.Sprintf("the station %s, which is no node's, answered, %s: %s; take the address from that machine, or out of the pool",
			d.Station, while, reach)
	}
	return asked + fmt.Sprintf("node %s (%s) answered, %s: %s; %s", d.Node, d.Station, while, reach, silence(address))
}
