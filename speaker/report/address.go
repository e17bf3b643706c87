package report

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/speaker/pulse/api"
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

// Reasons of the Events on a Service, and of the condition of the L2Address, with an address for which
// another node is to answer, and this node found that none answers, or another one.
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

// Address is one that this node answers for, or would answer for.
type Address struct {
	api.Ownership              // zero if another station, or a kernel, keeps this node from answering
	Contest       *api.Contest // nil: no such station is known
	Services      []string     // that have the address, as namespace/name, sorted
	// Obstruction is what on this node keeps clients from the address; nil: nothing is known.
	Obstruction *Finding
}

// Finding is what is wrong with an address, in the words of a condition or an Event.
type Finding struct {
	Reason, Message string
	Since           time.Time
}

// ContestOf returns what the contest of an address of the node means, and what to do about it.
func ContestOf(node string, address netip.Addr, c api.Contest) Finding {
	if c.Withheld && c.Node != "" {
		holder := fmt.Sprintf("an interface of node %s, which replied on %s,", c.Node, c.Interface)
		if c.Node == node {
			holder = fmt.Sprintf("interface %s of this node", c.Interface)
		}
		return Finding{ReasonAddressTaken, fmt.Sprintf("node %s does not answer for %s: %s has it already, as a virtual IP of keepalived or kube-vip or as a second address; "+
			"take the address from that interface, or out of the pool; it is tried again every 5 seconds",
			node, address, holder), c.Since}
	}
	if c.Withheld {
		return Finding{ReasonAddressTaken, fmt.Sprintf("node %s does not answer for %s: the station %s on %s has it already; "+
			"take the address from that machine, or out of the pool; it is tried again every 5 seconds",
			node, address, c.Station, c.Interface), c.Since}
	}
	reach := "so that clients may reach that one"
	if c.Yielded {
		reach = "which announces it again and again, as a node of another cluster does, and has the lower MAC address, so that clients reach that one"
	}
	return Finding{ReasonAddressContested, fmt.Sprintf("%s, which node %s answers for, is also claimed by the station %s on %s, %s: "+
		"take the address from that machine, or out of the pool",
		address, node, c.Station, c.Interface, reach), c.Since}
}

// DoubtOf returns what the node found about an address of another node, and what to do about it.
func DoubtOf(node string, address netip.Addr, d api.Doubt) Finding {
	f := Finding{Reason: ReasonAddressAnsweredTwice, Since: d.Since}
	asked := fmt.Sprintf("node %s asked for %s on %s, and ", node, address, d.Interface)
	while, reach := fmt.Sprintf("while node %s is to", d.Owner), "clients may reach either"
	switch {
	case d.Station == "":
		f.Reason = ReasonAddressUnanswered
	case d.Alone:
		f.Reason = ReasonAddressAnsweredElsewhere
		while, reach = fmt.Sprintf("while node %s, which is to, was not heard", d.Owner), "clients reach the wrong one"
	}
	switch {
	case d.Owner == "":
		f.Message = fmt.Sprintf("%s is answered for by nobody: the nodes that may have none of the interfaces that an L2Advertisement names, or none that is up "+
			"and on the network of the address, or lack its rules in the kernel; see spec.interfaces there and fairlead_pulse_unable_addresses", address)
	case d.Station == "":
		f.Message = asked + fmt.Sprintf("node %s, which is to answer, was not heard: clients may not reach the address either; "+
			"see whether a switch or a hypervisor between them drops frames for addresses that it did not assign, "+
			"or whether an interface there is wireless and not promiscuous", d.Owner)
	case d.Node == node:
		f.Message = fmt.Sprintf("the kernel of node %s answers for %s, which is on its interface %s, %s: %s; %s",
			node, address, d.Interface, while, reach, silence(address))
	case d.Node == "":
		f.Message = asked + fmt.Sprintf("the station %s, which is no node's, answered, %s: %s; take the address from that machine, or out of the pool",
			d.Station, while, reach)
	default:
		f.Message = asked + fmt.Sprintf("node %s (%s) answered, %s: %s; %s", d.Node, d.Station, while, reach, silence(address))
	}
	return f
}

// silence says what to do about a kernel that answers for an address.
func silence(address netip.Addr) string {
	if address.Is6() {
		return "take the address from the interface there that has it, or end the proxy (ip -6 neigh show proxy)"
	}
	return "see whether an interface there has the address: kube-proxy in IPVS mode needs strictARP, others the sysctls arp_ignore=1 and arp_announce=2"
}

// Owns takes in which addresses this node answers for, nil while that is not known. For each new one the
// Services that hold it get an Event; an address that this node answered for before this process began is not new.
func (r *Reporter) Owns(owned map[netip.Addr]api.Ownership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for address, how := range owned {
		before, known := r.owned[address]
		if known && slices.Equal(before.Interfaces, how.Interfaces) || !known && how.Since.Before(r.began) {
			continue
		}
		r.log.Info("answering for an address", "address", address.String(), "interfaces", how.Interfaces)
		r.gained[address] = true
	}
	for address := range r.owned {
		if _, ok := owned[address]; !ok {
			r.log.Info("no longer answering for an address", "address", address.String())
			delete(r.gained, address)
		}
	}
	r.owned = owned
	r.ownershipEvents()
	r.metrics.owned.Set(float64(len(owned)))
	r.writeAddresses()
}

// ownershipEvents writes the Events of new ownerships. Pulse may report one before the pass that led to
// it is reported; then its Services are known only later.
func (r *Reporter) ownershipEvents() {
	if r.cluster == nil {
		return
	}
	for address := range r.gained {
		reason := ReasonAnsweringARP
		if address.Is6() {
			reason = ReasonAnsweringNDP
		}
		for _, s := range r.cluster.Services {
			if slices.Contains(s.VIPs, address) {
				r.event(serviceReference(s), corev1.EventTypeNormal, reason, "node %s answers for %s on %s",
					r.node, address, strings.Join(r.owned[address].Interfaces, ", "))
				delete(r.gained, address)
			}
		}
	}
}

// Contests takes in the addresses of this node that other stations have, and those of other
// nodes about which this one has doubts.
func (r *Reporter) Contests(contested map[netip.Addr]api.Contest, doubted map[netip.Addr]api.Doubt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects.Doubts(doubted) // none as well: an earlier process may have written some
	if maps.Equal(contested, r.contested) && maps.Equal(doubted, r.doubted) {
		return
	}
	r.contested, r.doubted = contested, doubted
	r.publishProblems()
	r.writeAddresses()
}

func (r *Reporter) contests() []problem.Problem {
	if len(r.contested)+len(r.doubted) == 0 || r.cluster == nil {
		return nil
	}
	var problems []problem.Problem
	for _, s := range r.cluster.Services {
		for _, address := range s.VIPs {
			if c, is := r.contested[address]; is {
				f := ContestOf(r.node, address, c)
				problems = append(problems, problem.Problem{Object: s.Object(), Reason: f.Reason, Message: f.Message, Advisory: !c.Withheld})
			}
			if d, is := r.doubted[address]; is {
				f := DoubtOf(r.node, address, d)
				problems = append(problems, problem.Advice(s.Object(), f.Reason, "%s", f.Message))
			}
		}
	}
	return problems
}

// Refresh writes the objects of the addresses and of the forwarding anew. It is called now and then: which
// Services have an address may change while nothing else does, and that nothing else changes our rules shows
// with time.
func (r *Reporter) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellProblems()
	r.writeAddresses()
	r.writeForwarding()
}

// writeAddresses hands on what this node answers for, once that is known: objects that an earlier process
// has written stay until then.
func (r *Reporter) writeAddresses() {
	if r.owned == nil || !r.registered() {
		return
	}
	addresses := make(map[netip.Addr]Address, len(r.owned)+len(r.contested))
	for address, how := range r.owned {
		addresses[address] = Address{Ownership: how}
	}
	for address, contest := range r.contested {
		a := addresses[address]
		a.Contest = &contest
		addresses[address] = a
	}
	for address, o := range r.inTheWay {
		if a, there := addresses[address]; there {
			a.Obstruction = &o
			addresses[address] = a
		}
	}
	for _, s := range r.cluster.Services {
		for _, vip := range s.VIPs {
			if a, there := addresses[vip]; there {
				a.Services = append(a.Services, s.String())
				addresses[vip] = a
			}
		}
	}
	for _, a := range addresses {
		slices.Sort(a.Services)
	}
	r.objects.Addresses(types.UID(r.cluster.Nodes[r.node].UID), addresses)
}
