package allocation

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// tenantsOf are the Services on an address, active or settled: one, or several that share it.
func (p *planner) tenantsOf(a netip.Addr) []*view.Service {
	if tenants := p.tenants[a]; tenants != nil {
		return tenants
	}
	if s := p.settled.on[a]; s != nil {
		return []*view.Service{s}
	}
	return nil
}

// take makes a Service a tenant of the address, or has a reservation hold it.
func (p *planner) take(a netip.Addr, o owner) {
	if o.reservation != nil {
		if r := o.reservation; !slices.Contains(p.reserved[a], r) {
			p.countQuota(a, r.Namespace)
			p.reserved[a] = append(p.reserved[a], r)
		}
		return
	}
	s, tenants := o.service, p.tenantsOf(a)
	if slices.Contains(tenants, s) {
		return
	}
	p.countQuota(a, s.Namespace)
	p.tenants[a] = append(slices.Clip(tenants), s)
	key := s.Request.ShareKey
	if key != "" && !slices.ContainsFunc(tenants, func(other *view.Service) bool { return other.Request.ShareKey == key }) {
		p.shared[key] = append(p.shared[key], a)
	}
}

// obstacle returns the first holder of the address that excludes the owner, "" for none, and
// why.
func (p *planner) obstacle(a netip.Addr, o owner) (holder, why string) {
	for _, r := range p.reserved[a] {
		switch {
		case r.Namespace != o.ref().Namespace:
			return owner{reservation: r}.String(), "it is for that namespace alone"
		case o.reservation != nil && o.reservation != r:
			return owner{reservation: r}.String(), "an address is in one reservation only"
		}
	}
	for _, other := range p.tenantsOf(a) {
		why = p.apart(other, o, a)
		if why != "" && other.Deleting {
			why = "it is being deleted, and has the address until its finalizers are done"
		}
		if why != "" {
			return owner{service: other}.String(), why
		}
	}
	return "", ""
}

// apart says why a Service and an owner cannot both hold an address; "" means that they
// can, or are the same. Services that share must be ours to allocate for: other controllers
// do not keep our rules. It says nothing of the keys of namespaces that do not share.
func (p *planner) apart(a *view.Service, o owner, on netip.Addr) string {
	b := o.service
	switch {
	case b == nil && a.Namespace == o.reservation.Namespace:
		return ""
	case b == nil:
		return "it is of another namespace"
	case a == b:
		return ""
	case !agree(a, b) && (!slices.Contains(b.Ingress, on) || !unasked(a, b)):
		return "to share it across namespaces, give both the annotation fairlead.dev/share-with, each with the namespace of the other"
	case a.Request.ShareKey == "" || b.Request.ShareKey == "":
		return "to share it, give both the same annotation fairlead.dev/share-key"
	case a.Request.ShareKey != b.Request.ShareKey:
		return "their share keys differ"
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

// agree reports whether two Services are of one namespace, or each names that of the other.
func agree(a, b *view.Service) bool {
	return a.Namespace == b.Namespace ||
		slices.Contains(a.Request.ShareWith, b.Namespace) && slices.Contains(b.Request.ShareWith, a.Namespace)
}

// unasked reports whether neither of two Services says with which namespaces it shares. What they have
// shared since before that was asked for stays.
func unasked(a, b *view.Service) bool { return len(a.Request.ShareWith)+len(b.Request.ShareWith) == 0 }

// markGuests notes which Services are guests on which addresses: until those of another namespace have gone that
// came first.
func (p *planner) markGuests() {
	for a, tenants := range p.tenants {
		host := slices.IndexFunc(tenants, func(s *view.Service) bool {
			result, ours := p.result.Services[s.Ref]
			return !ours || slices.Contains(result.Addresses, a)
		})
		for _, s := range tenants[host+1:] {
			result := p.result.Services[s.Ref]
			if host >= 0 && s.Namespace != tenants[host].Namespace && slices.Contains(result.Addresses, a) {
				result.Guest = append(result.Guest, a)
				slices.SortFunc(result.Guest, netip.Addr.Compare)
				p.result.Services[s.Ref] = result
			}
		}
	}
}

// tellUnagreed has a problem for each address that the Service shares with another namespace without
// having agreed on it.
func (p *planner) tellUnagreed(req *request, held []netip.Addr) {
	for _, a := range held {
		for _, other := range p.tenantsOf(a) {
			if !agree(other, req.service) && p.apart(other, req.owner, a) == "" {
				p.advise(req, ReasonSharingNotAgreed, "%s is shared with namespace %q, to which both have not agreed; it stays so until one says with which it shares: "+
					"give the Services of both the annotation fairlead.dev/share-with, each with the namespace of the other", a, other.Namespace)
				break
			}
		}
	}
}

// allocates reports whether the addresses of the Service come from us. It may be
// about to go.
func (p *planner) allocates(s *view.Service) bool {
	return s.Type == view.LoadBalancer && p.classes.Serves(s.Class)
}

// together finds the lowest address that the Service may have and can share with
// those that have its key; the zero Addr for none.
func (p *planner) together(s *view.Service, f addr.Family) netip.Addr {
	var lowest netip.Addr
	o := owner{service: s}
	for _, a := range p.shared[s.Request.ShareKey] {
		if addr.FamilyOf(a) != f || lowest.IsValid() && lowest.Less(a) || !p.offers(o, a) {
			continue
		}
		if holder, _ := p.obstacle(a, o); holder == "" {
			lowest = a
		}
	}
	return lowest
}
