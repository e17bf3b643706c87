package owner

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
)

// linkIsolation is about the interfaces of which the hellos of the mesh say nothing: it goes by the addresses
// of nodes, and no family of these is on another interface than they are.
type linkIsolation struct {
	cut   map[int]bool // those over which no node is heard, though others hear each other there, by index
	names []string     // of these
}

// all are the links of both families that are answered on, once, sorted by index.
func (on networks) all() []links.Link {
	all := slices.Clone(on[addr.IPv4])
	for _, l := range on[addr.IPv6] {
		if !slices.ContainsFunc(all, func(o links.Link) bool { return o.Index == l.Index }) {
			all = append(all, l)
		}
	}
	return all
}

// apartFrom are those of which the hellos of the mesh say nothing.
func (on networks) apartFrom(nodeAddrs []netip.Addr) []links.Link {
	return slices.DeleteFunc(on.all(), func(l links.Link) bool {
		has := func(a netip.Addr) bool {
			return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr() == a.Unmap() })
		}
		return !slices.ContainsFunc(nodeAddrs, func(a netip.Addr) bool { return !has(a) })
	})
}

// monitored is what is to be monitored.
func monitored(t *api.Table, on []links.Link) linkcheck.Wanted {
	w := linkcheck.Wanted{Nodes: make(map[string]bool, len(t.Peers)), On: make(map[int]linkcheck.Interface, len(on))}
	if len(on) == 0 {
		return w
	}
	for node := range t.Peers {
		w.Nodes[node] = true
	}
	for _, l := range on {
		w.On[l.Index] = linkcheck.Interface{Nth: l.Nth, Name: l.Name, MAC: l.MAC, Ups: l.Ups}
	}
	return w
}

// told are the interfaces of the reach, as the other nodes are told of them.
func (ap *linkIsolation) told(on []links.Link, status map[int]linkcheck.Status) []hello.Interface {
	all := make([]hello.Interface, 0, len(on))
	for _, l := range on {
		all = append(all, hello.Interface{
			ID: hello.IDOf(l.Name), Subnets: subnets(l), Heard: status[l.Index].Heard, CutOff: ap.cut[l.Index],
		})
	}
	return all
}

// subnets are those of a link by which a node can be told from one with another network.
func subnets(l links.Link) []netip.Prefix {
	var s []netip.Prefix
	for _, p := range l.Prefixes {
		if !p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast() {
			s = append(s, p.Masked())
		}
	}
	return s
}

// meant tells whether an interface of another node is meant to be in the network of a link: they
// share a subnet; or where one of them has none, it was heard there, or has the same name.
func meant(l links.Link, node string, i hello.Interface, met map[string]hello.ID) bool {
	own := subnets(l)
	if len(own) > 0 && len(i.Subnets) > 0 {
		return slices.ContainsFunc(own, func(p netip.Prefix) bool { return slices.Contains(i.Subnets, p) })
	}
	if from, heard := met[node]; heard {
		return from == i.ID
	}
	return len(own) == 0 && len(i.Subnets) == 0 && i.ID == hello.IDOf(l.Name)
}

// judge finds the links that are cut off: nothing is heard over them, and another node
// hears one there that is not this node. Where all hear nothing, the network may be down, or not
// pass what they say; or there are but two, of which neither knows which link it is. Then all go on.
func (ap *linkIsolation) judge(self string, v hello.View, on []links.Link, status map[int]linkcheck.Status) {
	id := hello.IDOf(self)
	ap.cut, ap.names = map[int]bool{}, nil
	for _, l := range on {
		if s, known := status[l.Index]; known && s.Silent {
			ap.cut[l.Index] = anyInterface(self, v, func(node string, i hello.Interface) bool {
				return meant(l, node, i, s.Met) && slices.ContainsFunc(i.Heard, func(other hello.ID) bool { return other != id })
			})
		}
		if ap.cut[l.Index] {
			ap.names = append(ap.names, l.Name)
		}
	}
}

// anyInterface tells whether something is true of an interface of another node that is alive.
func anyInterface(self string, v hello.View, is func(node string, i hello.Interface) bool) bool {
	for node, m := range v.Alive {
		if node != self && slices.ContainsFunc(m.Interfaces, func(i hello.Interface) bool { return is(node, i) }) {
			return true
		}
	}
	return false
}

// limit takes the addresses out of the reach for which all links are cut off and another
// candidate is there that is able to answer for them, and does not say that it is cut off, too.
func (ap *linkIsolation) limit(r reach, t *api.Table, v hello.View, status map[int]linkcheck.Status) {
	for a, on := range r {
		off := func(l links.Link) bool { return ap.cut[l.Index] }
		if len(on) == 0 || !slices.ContainsFunc(on, off) || slices.ContainsFunc(on, func(l links.Link) bool { return !off(l) }) {
			continue
		}
		if slices.ContainsFunc(t.Claims[a].Candidates, func(node string) bool {
			return node != t.Node && v.CanServe(node, a) && !slices.ContainsFunc(v.Alive[node].Interfaces, func(i hello.Interface) bool {
				return i.CutOff && slices.ContainsFunc(on, func(l links.Link) bool { return meant(l, node, i, status[l.Index].Met) })
			})
		}) {
			r[a] = nil
		}
	}
}
