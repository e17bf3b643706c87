package owner

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/speaker/links"
)

// linkFilter is what of the links anything follows from, by the table. A node has hundreds of links
// that come and go with pods; to look through all addresses each time would take the time that a
// takeover waits for.
type linkFilter struct {
	of    *api.Table // by which links matter; nil: none yet
	names map[string]bool
	// addresses are those of the node and those that are answered for, here or elsewhere.
	addresses map[netip.Addr]bool
	linkLocal bool            // there are such addresses of IPv6 among them
	links     *links.Snapshot // those that matter, when they were looked at last
	reach     reach           // by these links; nil: not known yet
}

// look takes in the links and tells whether anything is new about those that matter. named
// are more names that do.
func (c *linkFilter) look(t *api.Table, named map[string]bool, s *links.Snapshot) (news bool) {
	if c.of != t {
		*c = linkFilter{of: t, names: map[string]bool{}, addresses: t.Addresses()}
		for _, a := range t.NodeAddrs {
			c.addresses[a] = true
		}
		for a := range c.addresses {
			c.linkLocal = c.linkLocal || a.Is6() && a.IsLinkLocalUnicast()
		}
		for _, name := range t.Unnumbered {
			c.names[name] = true
		}
		for _, claim := range t.Claims {
			for _, name := range claim.Interfaces {
				c.names[name] = true
			}
		}
	}
	now := s.Only(func(l links.Link) bool { return c.matters(l) || named[l.Name] })
	if c.links != nil && c.links.Equal(now) {
		return false
	}
	c.links, c.reach = now, nil
	return true
}

// matters tells whether a link can have to do with an address: one that is named, that has an
// address of ours, or that is in a network, be it one that a peer's address is in. The one at which
// a pod's cable ends is in none: it has no address, or a link-local one, or that of the pods' gateway
// without any subnet.
func (c *linkFilter) matters(l links.Link) bool {
	return c.names[l.Name] || len(l.Peered) > 0 || slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool {
		isNetwork := !p.IsSingleIP() && (c.linkLocal || p.Addr().Is4() || !p.Addr().IsLinkLocalUnicast())
		return isNetwork || c.addresses[p.Addr()]
	})
}

// reachable is the reach by the table and the links, for the caller to change.
func (c *linkFilter) reachable() reach {
	if c.reach == nil {
		c.reach = reachOf(c.of, c.links)
	}
	return maps.Clone(c.reach)
}
