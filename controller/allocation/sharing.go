package allocation

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// tenants are the Services on one address: one, or several that share it. Most
// addresses have one, for which there is no list.
type tenants struct {
	first *view.Service
	more  []*view.Service
}

// has tells whether the Service is among them.
func (t tenants) has(s *view.Service) bool {
	return t.first == s || slices.Contains(t.more, s)
}

// of tells whether one of them is of the namespace.
func (t tenants) of(namespace string) bool {
	return t.first != nil && t.first.Namespace == namespace ||
		slices.ContainsFunc(t.more, func(s *view.Service) bool { return s.Namespace == namespace })
}

// withKey tells whether one of them has the share key.
func (t tenants) withKey(key string) bool {
	return t.first != nil && t.first.Request.ShareKey == key ||
		slices.ContainsFunc(t.more, func(s *view.Service) bool { return s.Request.ShareKey == key })
}

// without are the tenants but for one.
func (t tenants) without(s *view.Service) tenants {
	var rest tenants
	for _, other := range append([]*view.Service{t.first}, t.more...) {
		switch {
		case other == s:
		case rest.first == nil:
			rest.first = other
		default:
			rest.more = append(rest.more, other)
		}
	}
	return rest
}

// settleOn makes the Service a tenant of the address.
func (p *planner) settleOn(a netip.Addr, s *view.Service) {
	t := p.tenants[a]
	before := t
	switch {
	case t.first == nil:
		t.first = s
	case t.has(s):
		return
	default:
		t.more = append(slices.Clip(t.more), s)
	}
	p.tenants[a] = t
	p.countQuota(a, before, s)
	if key := s.Request.ShareKey; key != "" && !before.withKey(key) {
		p.shared[key] = append(p.shared[key], a)
	}
}

// obstacle is the first tenant of the address beside which the Service cannot be
// there, nil for none, and why.
func (p *planner) obstacle(a netip.Addr, s *view.Service) (other *view.Service, why string) {
	t := p.tenants[a]
	if t.first == nil {
		return nil, ""
	}
	if why = p.apart(t.first, s); why != "" {
		return t.first, why
	}
	for _, other := range t.more {
		if why = p.apart(other, s); why != "" {
			return other, why
		}
	}
	return nil, ""
}

// apart says why two Services cannot share an address; "" means that they can, or are
// the same. Both must be ours to allocate for: nobody else keeps our rules.
func (p *planner) apart(a, b *view.Service) string {
	switch {
	case a == b:
		return ""
	case a.Request.ShareKey == "" || b.Request.ShareKey == "":
		return "to share it, give both the same annotation fairlead.dev/share-key"
	case a.Request.ShareKey != b.Request.ShareKey:
		return fmt.Sprintf("their share keys differ, %q and %q", a.Request.ShareKey, b.Request.ShareKey)
	case !p.allocates(a) || !p.allocates(b):
		return "it is not of type LoadBalancer, or of another class"
	}
	for _, x := range a.Ports {
		for _, y := range b.Ports {
			if x.Port == y.Port && x.Protocol == y.Protocol {
				return fmt.Sprintf("both have port %d/%s", x.Port, x.Protocol)
			}
		}
	}
	return ""
}

// allocates tells whether the addresses of the Service come from us. It may be
// about to go.
func (p *planner) allocates(s *view.Service) bool {
	return s.Type == view.LoadBalancer && p.classes.Serves(s.Class)
}

// together finds the lowest address that the Service may have and can share with
// those that have its key; the zero Addr for none.
func (p *planner) together(s *view.Service, f addr.Family) netip.Addr {
	var lowest netip.Addr
	for _, a := range p.shared[s.Request.ShareKey] {
		if addr.FamilyOf(a) != f || lowest.IsValid() && lowest.Less(a) || !p.offers(s, a) {
			continue
		}
		if other, _ := p.obstacle(a, s); other == nil {
			lowest = a
		}
	}
	return lowest
}
