package iptables

import (
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conflicts"
)

// ruleset is one table and the two trees in it.
type ruleset struct {
	table     *table
	services  *dispatcher
	nodePorts *dispatcher
}

func newRuleset(s style, name string, jumps []jump) ruleset {
	return ruleset{
		table:     newTable(name, jumps),
		services:  newDispatcher(shape{root: chainServices, prefix: ours + "IP-", bits: s.family.Bits(), leaf: s.leaf()}),
		nodePorts: newDispatcher(shape{root: chainNodePorts, prefix: ours + "NP-", leaf: s.leaf()}),
	}
}

// replace takes out what a port had and puts in what it gets.
func (r ruleset) replace(key desired.PortKey, from, to part) {
	for chain := range from.chains {
		if _, stays := to.chains[chain]; !stays {
			r.table.drop(chain)
		}
	}
	for chain, rules := range to.chains {
		r.table.set(chain, rules)
	}
	r.services.replace(key, from.services, to.services)
	r.nodePorts.replace(key, from.nodePorts, to.nodePorts)
}

// publish brings the table up to date with the trees.
func (r ruleset) publish() {
	r.services.tree.publish(r.table.set, r.table.drop)
	r.nodePorts.tree.publish(r.table.set, r.table.drop)
}

// dispatcher is a tree whose destinations several ports may claim.
type dispatcher struct {
	tree       *tree
	precedence conflicts.Destinations[destination, target]
}

func newDispatcher(s shape) *dispatcher { return &dispatcher{tree: newTree(s)} }

func (d *dispatcher) replace(key desired.PortKey, from, to map[destination]target) {
	for at := range from {
		if _, stays := to[at]; !stays {
			d.precedence.Release(at, key)
			d.update(at)
		}
	}
	for at, where := range to {
		if from[at] != where {
			d.precedence.Set(at, conflicts.Candidate[target]{Key: key, Rank: where.rank, Value: where})
			d.update(at)
		}
	}
}

func (d *dispatcher) update(at destination) {
	if holder, ok := d.precedence.Winner(at); ok {
		d.tree.set(at, holder.Value)
	} else {
		d.tree.unset(at)
	}
}
