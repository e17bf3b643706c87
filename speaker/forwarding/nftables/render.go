package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// item is one element of a set or map: in an interval set a whole interval by its
// first key. Chains are items too, by their name.
type item struct {
	set setID
	key string
}

// element is an item and its value: none in a set, the last key in an interval set, a
// chain in a map of verdicts, the rules of a chain.
type element struct {
	item
	value string
}

// destination is what packets are addressed to. The address is not valid if it is any
// where NodePorts answer.
type destination struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
}

func (d destination) matchKind() matchKind {
	if d.addr.IsValid() {
		return byAddress
	}
	return byNodePort
}

func (d destination) key() string {
	return string(d.addr.AsSlice()) + word8(d.protocol) + word16(d.port)
}

// server is an endpoint that any port has.
type server struct {
	netip.AddrPort
	protocol uint8
}

func (s server) element() element {
	a := string(s.Addr().AsSlice())
	return element{item{servers, a + a + word8(s.protocol) + word16(s.Port())}, ""}
}

// version is one port at one time.
type version struct {
	port       desired.Port
	assignment *slotAssignment // nil without session affinity
}

// rendering is what one port wants in the kernel.
type rendering struct {
	held              []holding // what it has if it holds the destinations
	affinityEndpoints []element
	servers           []server
	addresses         []item  // of serviceIPs and pinged
	chains            []chain // without repetition
}

// holding is all that is known by one destination.
type holding struct {
	at       destination
	rank     int // see desired.Port
	elements []element
}

// renderer turns one port into elements. See desired.Port for what they must do.
type renderer struct {
	*layout
	version
	protocol uint8
	admitted []netip.Prefix // by VIPs, none within another
	out      rendering
}

func (l *layout) render(key desired.PortKey, v version) rendering {
	r := renderer{layout: l, version: v, protocol: key.Protocol.Number()}
	r.internal()
	r.external()
	r.endpoints()
	for _, a := range append([]netip.Addr{v.port.ClusterIP}, v.port.Announced...) {
		if a.IsValid() {
			r.out.addresses = append(r.out.addresses, item{serviceIPs, string(a.AsSlice())})
		}
	}
	for _, a := range v.port.Pinged() {
		r.out.addresses = append(r.out.addresses, item{pinged, string(a.AsSlice())})
	}
	return r.out
}

// check finds what the kernel would take for something else, or not at all.
func (l *layout) check(key desired.PortKey, p desired.Port) error {
	if key.Protocol.Number() == 0 {
		return fmt.Errorf("protocol %q: %w", key.Protocol, errors.ErrUnsupported)
	}
	for _, a := range slices.Concat(p.ExternalIPs, p.VIPs) {
		if !l.owns(a) {
			return fmt.Errorf("address %s is not %s", a, l.Family)
		}
	}
	if p.ClusterIP.IsValid() && !l.owns(p.ClusterIP) {
		return fmt.Errorf("address %s is not %s", p.ClusterIP, l.Family)
	}
	for _, some := range [][]netip.AddrPort{p.Cluster, p.Local, p.Serving, p.Listed} {
		for _, e := range some {
			if !l.owns(e.Addr()) || e.Port() == 0 {
				return fmt.Errorf("endpoint %s is not an %s address with a port", e, l.Family)
			}
		}
	}
	for _, s := range p.SourceRanges {
		if !s.IsValid() || !l.owns(s.Addr()) {
			return fmt.Errorf("source range %s is not %s", s, l.Family)
		}
	}
	most, n := localSlot-1, max(len(p.Cluster), len(p.Local))
	if p.Affinity > 0 { // those of both sets have slots of their own
		most = slotMask
		all := slices.Concat(p.Cluster, p.Local)
		slices.SortFunc(all, netip.AddrPort.Compare)
		n = len(slices.Compact(all))
	}
	if n > most {
		return fmt.Errorf("%d endpoints are more than the %d that there is room for", n, most)
	}
	return nil
}

func (l *layout) owns(a netip.Addr) bool { return a.IsValid() && addr.FamilyOf(a) == l.Family }

// internal renders what happens to packets for the ClusterIP.
func (r *renderer) internal() {
	if !r.port.ClusterIP.IsValid() {
		return
	}
	c := class{main: r.group(r.port.InternalLocal, r.port.InternalLocal)}
	switch {
	case c.main.size == 0:
	case r.port.MasqueradeAll:
		c.entry = masked
	default:
		c.entry, c.pods = internal, r.port.PodLinks
	}
	r.hold(r.port.ClusterIP, r.port.Port, c)
}

// external renders what happens to packets for VIPs, ExternalIPs and the NodePort.
func (r *renderer) external() {
	p := r.port
	c := class{entry: masked, main: r.group(false, p.ExternalLocal)}
	if p.ExternalLocal {
		c.entry, c.others, c.pods = outside, r.group(true, true), r.port.PodLinks
	}
	if c.main.size == 0 && c.others.size == 0 {
		c.entry, c.others, c.pods = plain, group{}, desired.Links{}
	}
	for _, a := range p.ExternalIPs {
		r.hold(a, p.Port, c)
	}
	if p.NodePort != 0 {
		r.hold(netip.Addr{}, p.NodePort, c)
	}
	if c.guarded = p.Restricted; c.guarded {
		r.admitted = disjoint(p.SourceRanges).Prefixes()
		c.lengths = r.lengthsOf(r.admitted)
	}
	for _, a := range p.VIPs {
		r.hold(a, p.Port, c)
	}
}

// group is one of the two sets of endpoints, for a destination with this policy. An
// empty one refuses, and says nothing where another node could have served: the
// sender's retry may go there.
func (r *renderer) group(local, policyLocal bool) group {
	endpoints := r.port.Cluster
	if local {
		endpoints = r.port.Local
	}
	if len(endpoints) == 0 {
		return group{silent: policyLocal && len(r.port.Local) == 0 && r.port.Anywhere}
	}
	g := group{size: uint32(len(endpoints)), local: local}
	if r.assignment != nil {
		g.seconds = uint32(max(r.port.Affinity.Seconds(), 1))
	}
	return g
}

// hold adds all that is known by a destination, and the chains that it leads to.
func (r *renderer) hold(at netip.Addr, port uint16, c class) {
	h := holding{at: destination{at, r.protocol, port}, rank: r.port.Rank(at)}
	key, w := h.at.key(), h.at.matchKind()
	needed := r.chains(c, w)
	h.elements = []element{{item{w.of(services), key}, needed[0].Name}, {item{w.known(c.source()), key}, ""}}
	if c.linked() {
		h.elements[1].set = w.known(keep)
		h.elements = append(h.elements, element{item{w.known(byLink), key}, r.bySourceLink(c).Name})
	}
	for _, c := range needed {
		if len(c.Rules) > 0 && !slices.ContainsFunc(r.out.chains, func(has chain) bool { return has.Name == c.Name }) {
			r.out.chains = append(r.out.chains, c)
		}
	}
	if r.assignment != nil && c.main.size+c.others.size > 0 {
		h.elements = append(h.elements, element{item{w.of(affinityPorts), key}, word(r.assignment.id)})
	}
	for _, g := range []group{c.main, c.others} {
		h.elements = append(h.elements, r.slots(key, w, g)...)
	}
	if c.guarded {
		h.elements = append(h.elements, admissions(key, r.admitted)...)
	}
	for i := range r.out.held {
		if r.out.held[i].at == h.at { // the address stands in two fields of the Service
			r.out.held[i] = h
			return
		}
	}
	r.out.held = append(r.out.held, h)
}

// slots are what the chain of a group finds of this destination.
func (r *renderer) slots(key string, w matchKind, g group) []element {
	if g.size == 0 {
		return nil
	}
	all := r.port.Cluster
	if g.local {
		all = r.port.Local
	}
	elements := make([]element, 0, len(all))
	for i, e := range all {
		slot := key + word(g.first()+uint32(i))
		if r.assignment != nil {
			elements = append(elements, element{item{w.of(affinitySlots), slot}, word(r.assignment.slot(e))})
			continue
		}
		elements = append(elements, element{item{w.of(endpoints), slot}, endpoint(e)})
	}
	return elements
}

// endpoints adds what is known of endpoints, whatever destinations they serve.
func (r *renderer) endpoints() {
	all := r.port.Endpoints()
	r.out.servers = make([]server, 0, len(all))
	for _, e := range all {
		r.out.servers = append(r.out.servers, server{e, r.protocol})
	}
	if r.assignment == nil {
		return
	}
	for set, all := range map[setID][]netip.AddrPort{affinityEndpoints: r.port.Cluster, localAffinityEndpoints: r.port.Local} {
		for _, e := range all {
			r.out.affinityEndpoints = append(r.out.affinityEndpoints, element{item{set, word8(r.protocol) + word(r.assignment.slot(e))}, endpoint(e)})
		}
	}
}

func endpoint(e netip.AddrPort) string { return string(e.Addr().AsSlice()) + word16(e.Port()) }

// intervals are prefixes as an interval set takes them.
func intervals(set setID, prefixes []netip.Prefix) []element {
	var elements []element
	for _, r := range disjoint(prefixes).Ranges() {
		elements = append(elements, element{item{set, string(r.From().AsSlice())}, string(r.To().AsSlice())})
	}
	return elements
}

// disjoint is all that is in any of the prefixes.
func disjoint(prefixes []netip.Prefix) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		b.AddPrefix(p)
	}
	all, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{} // only invalid prefixes err, and check finds those
	}
	return all
}

// The forms in which registers hold numbers.

func word(n uint32) string   { return string(number(n)) }
func word16(n uint16) string { return string(binary.BigEndian.AppendUint16(nil, n)) + "\x00\x00" }
func word8(n uint8) string   { return string([]byte{n, 0, 0, 0}) }
