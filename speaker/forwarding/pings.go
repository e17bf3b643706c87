package forwarding

import (
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/outcome"
)

// pings ends the flows of pings of VIPs that are not answered any more: one that goes on is a flow, about which the kernel
// asks no rule, and would hear for ever that a VIP is served.
type pings struct {
	ports    map[desired.PortKey][]netip.Addr // VIPs that each has answered
	answered map[netip.Addr]int               // by how many ports
	echo     []netip.Addr
	former   []netip.Addr // addresses that answered before
	revision uint64       // of ports, but for the missing ones
	missing  outcome.Missing
	stale    bool // there may be such flows
}

func newPings() *pings {
	return &pings{ports: map[desired.PortKey][]netip.Addr{}, answered: map[netip.Addr]int{}, stale: true}
}

// follow takes over, after an Apply, which VIPs are answered. What the kernel does not have as wanted is left for later.
func (p *pings) follow(want desired.Forwarding, missing outcome.Missing) {
	if !slices.Equal(p.echo, want.Echo) {
		p.former, p.echo, p.stale = append(p.former, p.echo...), want.Echo, true
	}
	at, again := p.revision, p.missing
	p.revision, p.missing = want.Revision, missing
	for _, keys := range []iter.Seq[desired.PortKey]{maps.Keys(again), want.ChangedSince(at, maps.Keys(p.ports))} {
		for key := range keys {
			if missing.Not(key) {
				p.take(key, want.Ports[key].Pinged())
			}
		}
	}
}

// take takes over which VIPs a port answers.
func (p *pings) take(key desired.PortKey, has []netip.Addr) {
	had := p.ports[key]
	if slices.Equal(had, has) {
		return
	}
	for _, a := range has {
		p.answered[a]++
	}
	for _, a := range had {
		if p.answered[a]--; p.answered[a] == 0 {
			delete(p.answered, a)
			p.stale = true
		}
	}
	if p.ports[key] = has; len(has) == 0 {
		delete(p.ports, key)
	}
}

// clean deletes the flows, beside the next Applies, which hold the lock. The errors are the kernel's; what failed is tried
// the next time. A ping of which the flow is deleted too early begins another.
func (p *pings) clean(lock sync.Locker) error {
	lock.Lock()
	looks, echo, former, answered := p.stale, p.echo, p.former, maps.Clone(p.answered)
	p.stale, p.former = false, nil
	lock.Unlock()
	if !looks {
		return nil
	}
	var errs []error
	for _, family := range addr.Families() {
		_, err := conntrack.DeletePings(family, func(flow conntrack.Flow) bool {
			if flow.To == flow.Answers {
				return false
			}
			return slices.Contains(former, flow.Answers.Addr()) || slices.Contains(echo, flow.Answers.Addr()) && answered[flow.To.Addr()] == 0
		})
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err != nil {
		lock.Lock()
		p.stale, p.former = true, append(p.former, former...)
		lock.Unlock()
	}
	return err
}
