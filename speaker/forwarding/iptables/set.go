package iptables

import (
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// maxElements bounds a set; the kernel allocates as it fills.
const maxElements = 1 << 20

// set is one ipset: what it must hold, what the kernel is known to hold, and
// which elements may differ.
type set struct {
	ipset.Spec
	socket  *nfnetlink.Conn // that all sets of a family share
	members map[packed]member
	dirty   map[packed]struct{}
	known   bool         // what the kernel holds
	altered bool         // others were seen to have put other elements into it
	digest  uint64       // of what the kernel holds, seen since the last write to be nothing else than it was left with; 0: none
	seed    maphash.Seed // of digests
	present int          // members that the kernel holds
	repairs int          // how often others were found to have changed it
	exact   []ipset.Element
}

type member struct {
	users   int32 // that want it
	present bool  // in the kernel
}

func newSet(name string, kind ipset.Type, family addr.Family, socket *nfnetlink.Conn) *set {
	spec := ipset.Spec{Name: name, Type: kind, Family: family, MaxElements: maxElements}
	if kind == ipset.BitmapPort {
		spec.Family, spec.MaxElements = 0, 0
	}
	return &set{
		Spec: spec, socket: socket, seed: maphash.MakeSeed(),
		members: map[packed]member{}, dirty: map[packed]struct{}{},
	}
}

// use counts those that want an element up (by 1) or down (by -1).
func (s *set) use(e ipset.Element, by int32) {
	p, _ := pack(e)
	m := s.members[p]
	m.users += by
	s.put(p, m)
	s.dirty[p] = struct{}{}
}

// exactly makes these the elements that the set has from one user that says all of its
// elements at once.
func (s *set) exactly(elements []ipset.Element) {
	if slices.Equal(elements, s.exact) {
		return
	}
	for _, e := range elements {
		s.use(e, +1)
	}
	for _, e := range s.exact {
		s.use(e, -1)
	}
	s.exact = elements
}

func (s *set) put(e packed, m member) {
	if old := s.members[e]; old.present != m.present {
		if m.present {
			s.present++
		} else {
			s.present--
		}
	}
	if m == (member{}) {
		delete(s.members, e)
	} else {
		s.members[e] = m
	}
}

func (s *set) mark(e packed, present bool) {
	m := s.members[e]
	m.present = present
	s.put(e, m)
}

// load reads the set from the kernel, and makes it if it is missing or is not as
// ours are made.
func (s *set) load() error {
	s.known, s.digest = false, 0
	head, err := ipset.Look(s.socket, s.Name)
	var elements []ipset.Element
	switch {
	case errors.Is(err, ipset.ErrMissing):
		err = ipset.Create(s.Spec, len(s.members))
	case err != nil:
	case head.Spec == s.Spec:
		elements, err = ipset.Elements(s.Name)
	default:
		elements, err = s.replace(head)
	}
	if err != nil {
		return err
	}
	for e := range s.members {
		s.mark(e, false)
		s.dirty[e] = struct{}{}
	}
	var foreign []ipset.Element
	for _, e := range elements {
		p, ours := pack(e)
		if !ours {
			foreign = append(foreign, e)
			continue
		}
		s.mark(p, true)
		s.dirty[p] = struct{}{}
	}
	if len(foreign) > 0 {
		if err := ipset.Delete(s.Name, foreign); err != nil {
			return err
		}
	}
	s.known, s.altered = true, false
	return nil
}

// replace puts a set as ours are made in place of another of that name, filled
// before rules see it. It returns what it holds.
func (s *set) replace(other ipset.Header) ([]ipset.Element, error) {
	if other.Type != s.Type || other.Family != s.Family {
		if err := ipset.Destroy(s.Name); err != nil {
			return nil, fmt.Errorf("another program's set has the name of ours, but its type is %s and not %s of %s: %w: delete those rules",
				other.Type, s.Type, s.Family, err)
		}
		return nil, ipset.Create(s.Spec, len(s.members))
	}
	spare := s.Spec
	spare.Name += "-NEW"
	if err := ipset.Destroy(spare.Name); err != nil && !errors.Is(err, ipset.ErrMissing) {
		return nil, err
	}
	if err := ipset.Create(spare, len(s.members)); err != nil {
		return nil, err
	}
	for e := range s.members {
		s.mark(e, false)
	}
	missing, _ := s.differences(maps.Keys(s.members))
	// What does not go in shows as missing, and is told, when the set is filled.
	_ = ipset.Add(spare.Name, unpacked(missing))
	elements, err := ipset.Elements(spare.Name)
	return elements, errors.Join(err, ipset.Swap(spare.Name, s.Name), ipset.Destroy(spare.Name))
}

// differences are the elements of some that are wanted and not in the kernel, and
// the other way round.
func (s *set) differences(some iter.Seq[packed]) (missing, surplus []packed) {
	for e := range some {
		switch m := s.members[e]; {
		case m.users > 0 && !m.present:
			missing = append(missing, e)
		case m.users <= 0 && m.present:
			surplus = append(surplus, e)
		}
	}
	return missing, surplus
}

// check reads the set anew if the kernel has another set, or another number of elements in it than it was
// left with, which costs the same however many there are, or if others were seen to have altered it. It reports
// whether others changed it, and returns the kernel's errors.
func (s *set) check() (changed bool, err error) {
	if s.known && !s.altered && s.asLeft() {
		return false, nil
	}
	changed = s.known
	if changed {
		s.repairs++
	}
	return changed, s.load()
}

func (s *set) asLeft() bool {
	head, err := ipset.Look(s.socket, s.Name)
	return err == nil && head == (ipset.Header{Spec: s.Spec, Elements: s.present})
}

// sweep reads what the kernel holds, and reports whether it is other elements than the set was left with. It
// leaves it to asLeft whether there are more or fewer. Elements are compared one by one only where their digest is not known, as after
// a write, or is another one: that costs ten times as much.
func (s *set) sweep() bool {
	if !s.known {
		return false
	}
	if s.digest != 0 {
		if digest, err := ipset.Scan(s.socket, s.Name, s.seed, nil); err != nil || digest == s.digest {
			return false
		}
	}
	others := false
	digest, err := ipset.Scan(s.socket, s.Name, s.seed, func(e ipset.Element) {
		p, ours := pack(e)
		others = others || !ours || !s.members[p].present
	})
	if s.altered = err == nil && others; err == nil && !others {
		s.digest = digest
	}
	return s.altered
}

// fill adds what is wanted and missing. What the set does not take is tried again
// the next time.
func (s *set) fill() error {
	if !s.known {
		if err := s.load(); err != nil {
			return err
		}
	}
	missing, _ := s.differences(maps.Keys(s.dirty))
	if len(missing) == 0 {
		return nil
	}
	s.digest = 0
	err := ipset.Add(s.Name, unpacked(missing))
	if errors.Is(err, ipset.ErrFull) && s.trim() == nil { // rather too early than too late
		err = ipset.Add(s.Name, unpacked(missing))
	}
	if err != nil {
		s.known = false // some of them may be in it
		return err
	}
	for _, e := range missing {
		s.mark(e, true)
	}
	return nil
}

func (s *set) trim() error {
	_, surplus := s.differences(maps.Keys(s.dirty))
	if len(surplus) > 0 {
		s.digest = 0
		if err := ipset.Delete(s.Name, unpacked(surplus)); err != nil {
			s.known = false
			return err
		}
	}
	for _, e := range surplus {
		s.mark(e, false)
	}
	if s.known && len(s.dirty) > 0 {
		s.dirty = map[packed]struct{}{} // a map keeps the room that the first fill took
	}
	return nil
}

// elements are what the fixed sets hold of a port. What no set of the family can hold
// is left to the rules, which the kernel refuses: one bad port must not fail the set
// for all. Endpoints that serve no new flows are among them, for those that they have.
func elements(key desired.PortKey, p desired.Port) map[string][]ipset.Element {
	elements := map[string][]ipset.Element{}
	number := key.Protocol.Number()
	if number == 0 {
		return elements
	}
	for _, e := range p.Endpoints() {
		if addr.FamilyOf(e.Addr()) == key.Family && e.Port() != 0 {
			elements[ofEndpoints] = append(elements[ofEndpoints], endpointElement(e, key.Protocol))
		}
	}
	for _, a := range slices.Concat([]netip.Addr{p.ClusterIP}, p.ExternalIPs, p.VIPs) {
		if a.IsValid() && addr.FamilyOf(a) == key.Family && p.Port != 0 {
			elements[ofDestinations] = append(elements[ofDestinations], ipset.Element{
				Prefix: addr.HostPrefix(a), Protocol: number, Port: p.Port,
			})
		}
	}
	if p.ClusterIP.IsValid() && addr.FamilyOf(p.ClusterIP) == key.Family {
		elements[ofClusterIPs] = []ipset.Element{{Prefix: addr.HostPrefix(p.ClusterIP)}}
	}
	for of, addresses := range map[string][]netip.Addr{ofVIPs: p.Announced, ofPinged: p.Pinged()} {
		for _, a := range addresses {
			if addr.FamilyOf(a) == key.Family {
				elements[of] = append(elements[of], ipset.Element{Prefix: addr.HostPrefix(a)})
			}
		}
	}
	if p.NodePort != 0 {
		elements[ofNodePorts] = portElements([]uint16{p.NodePort})
	}
	return elements
}

func endpointElement(e netip.AddrPort, of view.Protocol) ipset.Element {
	return ipset.Element{Prefix: addr.HostPrefix(e.Addr()), Second: e.Addr(), Protocol: of.Number(), Port: e.Port()}
}

// netElements are the prefixes of one family as a hash:net set takes them: it
// knows no prefix of length 0, so that "everything" becomes two halves.
func netElements(prefixes []netip.Prefix, family addr.Family) []ipset.Element {
	var elements []ipset.Element
	for _, p := range prefixes {
		if addr.FamilyOf(p.Addr()) != family {
			continue
		}
		if p.Bits() > 0 {
			elements = append(elements, ipset.Element{Prefix: p.Masked()})
			continue
		}
		upper := slices.Clone(p.Masked().Addr().AsSlice())
		upper[0] = 0x80
		a, _ := netip.AddrFromSlice(upper)
		elements = append(elements,
			ipset.Element{Prefix: netip.PrefixFrom(p.Masked().Addr(), 1)}, ipset.Element{Prefix: netip.PrefixFrom(a, 1)})
	}
	return elements
}

func portElements(ports []uint16) []ipset.Element {
	elements := make([]ipset.Element, 0, len(ports))
	for _, port := range ports {
		elements = append(elements, ipset.Element{Port: port})
	}
	return elements
}
