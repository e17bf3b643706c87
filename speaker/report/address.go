package report

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Register keeps, where people can read it, which addresses this node answers for.
type Register interface {
	// Tell takes in all addresses that this node answers for, or would if no stranger had
	// them. uid is that of the Node. It does not wait, and writes to none.
	Tell(uid types.UID, addresses map[netip.Addr]Address)
}

// Address is one that this node answers for, or would.
type Address struct {
	Ownership          // the zero one if a stranger keeps this node from answering
	Contest   *Contest // by a stranger; nil: none is known
	Services  []string // that have the address, as namespace/name, sorted
	// Obstruction is what on this node keeps clients from it; nil: nothing is known.
	Obstruction *Obstruction
}

// Refresh tells the register and the bulletin anew. It is for now and then: which Services
// have an address may change while nothing else does, and that others leave our rules alone
// shows with time.
func (r *Reporter) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellAddresses()
	r.tellForwarding()
}

// tellAddresses hands on what this node answers for. That a process knows of nothing yet
// says nothing of what an earlier one told of.
func (r *Reporter) tellAddresses() {
	if r.owned == nil || r.cluster == nil || r.cluster.Nodes[r.node] == nil {
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
	r.register.Tell(types.UID(r.cluster.Nodes[r.node].UID), addresses)
}
