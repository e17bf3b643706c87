package forwarding

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
)

// deleteFlows is conntrack.DeleteUDP.
type deleteFlows func(family addr.Family, stale func(conntrack.Flow) bool) (int, error)

// cleaner makes a backend delete stale UDP flows after each Apply that changed
// UDP ports. The kernel asks the rules about the first packet of a flow only,
// and a UDP client that never pauses keeps its flow for ever: it would go on
// sending to an endpoint that is gone, or past a Service that has come.
//
// What nobody remembers is left alone: the flows of a Service that was deleted while no
// process ran cannot be told from those of others.
type cleaner struct {
	Backend
	delete deleteFlows
	// placed are the UDP ports that the kernel has, and nodePorts where their
	// NodePorts answer.
	placed    map[desired.PortKey]desired.Port
	nodePorts []netip.Prefix
	// former are where they answered until the last look.
	former []netip.Prefix
	// revision of the wanted ports that placed is of; 0: some were missing.
	revision uint64
	// pending are the destinations whose flows are still to be looked at.
	pending map[destination]struct{}
}

// destination is where clients of a family send to: an address and port, or that
// NodePort on any of the node's addresses.
type destination struct {
	family addr.Family
	netip.AddrPort
}

func newCleaner(backend Backend, del deleteFlows) *cleaner {
	return &cleaner{
		Backend: backend, delete: del,
		placed: map[desired.PortKey]desired.Port{}, pending: map[destination]struct{}{},
	}
}

// Apply implements Backend.
func (c *cleaner) Apply(ctx context.Context, want desired.Forwarding) (desired.Missing, error) {
	missing, err := c.Backend.Apply(ctx, want)
	c.note(want, missing)
	return missing, errors.Join(err, c.clean())
}

// note finds the destinations whose endpoints changed. A port that is wanted but
// not in place may have its old rules still, so its flows are left alone.
func (c *cleaner) note(want desired.Forwarding, missing desired.Missing) {
	if !slices.Equal(c.nodePorts, want.NodePorts) {
		c.former = append(c.former, c.nodePorts...)
		c.nodePorts = slices.Clone(want.NodePorts)
		for key, p := range c.placed {
			c.look(key, p)
		}
	}
	changes := want.Changes(c.placed, c.revision)
	c.revision = want.Revision
	for _, change := range changes {
		if change.Key.Protocol != view.UDP {
			continue
		}
		if _, lacking := missing[change.Key]; lacking {
			c.revision = 0 // to be looked at again
			continue
		}
		if change.From != nil {
			c.look(change.Key, *change.From)
		}
		if change.To == nil {
			delete(c.placed, change.Key)
			continue
		}
		c.look(change.Key, *change.To)
		c.placed[change.Key] = *change.To
	}
}

func (c *cleaner) look(key desired.PortKey, p desired.Port) {
	for at := range destinations(key, p) {
		c.pending[at] = struct{}{}
	}
}

// clean deletes the flows to pending destinations that go to none of the
// endpoints that serve there now. An endpoint that terminates but still serves
// keeps its flows, though new ones go elsewhere. What fails is tried after the
// next Apply.
func (c *cleaner) clean() error {
	if len(c.pending) == 0 {
		return nil
	}
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	allowed := map[destination][]netip.AddrPort{}
	for at := range c.pending {
		allowed[at] = nil
	}
	for key, p := range c.placed {
		for at := range destinations(key, p) {
			if _, pending := c.pending[at]; pending {
				allowed[at] = append(allowed[at], p.Serving...)
			}
		}
	}
	var errs []error
	for _, family := range addr.Families() {
		errs = append(errs, c.cleanFamily(family, allowed, own))
	}
	if len(c.pending) == 0 {
		c.former = nil
	}
	return errors.Join(errs...)
}

func (c *cleaner) cleanFamily(family addr.Family, allowed map[destination][]netip.AddrPort, own map[netip.Addr]bool) error {
	var mine []destination
	for at := range c.pending {
		if at.family == family {
			mine = append(mine, at)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	_, err := c.delete(family, func(flow conntrack.Flow) bool {
		endpoints, ours := allowed[destination{family, flow.To}]
		if a := flow.To.Addr(); !ours && own[a] {
			endpoints, ours = allowed[nodePort(family, flow.To.Port())]
			if !within(c.nodePorts, a) {
				endpoints, ours = nil, ours && within(c.former, a)
			}
		}
		return ours && !slices.Contains(endpoints, flow.Answers)
	})
	if err != nil {
		return err
	}
	for _, at := range mine {
		delete(c.pending, at)
	}
	return nil
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ownAddresses are those of the node, loopback ones excepted: on them no NodePort
// answers.
func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, each := range all {
		if prefix, err := netip.ParsePrefix(each.String()); err == nil && !prefix.Addr().IsLoopback() {
			own[prefix.Addr()] = true
		}
	}
	return own, nil
}

func nodePort(family addr.Family, port uint16) destination {
	return destination{family, netip.AddrPortFrom(netip.Addr{}, port)}
}

// destinations yields where packets for a port are addressed to.
func destinations(key desired.PortKey, p desired.Port) iter.Seq[destination] {
	return func(yield func(destination) bool) {
		for _, a := range slices.Concat([]netip.Addr{p.ClusterIP}, p.ExternalIPs, p.VIPs) {
			if a.IsValid() && !yield(destination{key.Family, netip.AddrPortFrom(a, p.Port)}) {
				return
			}
		}
		if p.NodePort != 0 {
			yield(nodePort(key.Family, p.NodePort))
		}
	}
}
