package iptables

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// maxElements bounds a set; the kernel allocates as it fills.
const maxElements = 1 << 20

// set is one ipset: what it must hold, what the kernel is known to hold, and
// which elements may differ.
type set struct {
	ipset.Spec
	socket  *nfnetlink.Conn // that all sets of a family share
	members map[ipset.Element]member
	dirty   map[ipset.Element]struct{}
	known   bool // what the kernel holds
	present int  // members that the kernel holds
	repairs int  // how often others were found to have changed it
	exact   []ipset.Element
}

// member is one element that is wanted or in the kernel.
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
		Spec: spec, socket: socket,
		members: map[ipset.Element]member{}, dirty: map[ipset.Element]struct{}{},
	}
}

// use counts those that want an element up (by 1) or down (by -1).
func (s *set) use(e ipset.Element, by int32) {
	m := s.members[e]
	m.users += by
	s.put(e, m)
	s.dirty[e] = struct{}{}
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

func (s *set) put(e ipset.Element, m member) {
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

func (s *set) mark(e ipset.Element, present bool) {
	m := s.members[e]
	m.present = present
	s.put(e, m)
}

// load reads the set from the kernel, and makes it if it is missing or is not as
// ours are made.
func (s *set) load() error {
	s.known = false
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
	for _, e := range elements {
		s.mark(e, true)
		s.dirty[e] = struct{}{}
	}
	s.known = true
	return nil
}

// replace puts a set as ours are made in place of another of that name, filled
// before rules see it. It returns what it holds.
func (s *set) replace(other ipset.Header) ([]ipset.Element, error) {
	if other.Type != s.Type || other.Family != s.Family {
		if err := ipset.Destroy(s.Name); err != nil {
			return nil, fmt.Errorf("somebody else's set has the name of ours, but its type is %s and not %s of %s: %w: delete those rules",
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
	_ = ipset.Add(spare.Name, missing)
	elements, err := ipset.Elements(spare.Name)
	return elements, errors.Join(err, ipset.Swap(spare.Name, s.Name), ipset.Destroy(spare.Name))
}

// differences are the elements of some that are wanted and not in the kernel, and
// the other way round.
func (s *set) differences(some iter.Seq[ipset.Element]) (missing, surplus []ipset.Element) {
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

// check reads the set anew if the kernel has another number of elements in it
// than it was left with, or another set. It costs the same however many there are.
func (s *set) check() error {
	if s.known && s.asLeft() {
		return nil
	}
	if s.known {
		s.repairs++
	}
	return s.load()
}

func (s *set) asLeft() bool {
	head, err := ipset.Look(s.socket, s.Name)
	return err == nil && head == (ipset.Header{Spec: s.Spec, Elements: s.present})
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
	err := ipset.Add(s.Name, missing)
	if errors.Is(err, ipset.ErrFull) && s.trim() == nil { // rather too early than too late
		err = ipset.Add(s.Name, missing)
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

// trim removes what is not wanted any more.
func (s *set) trim() error {
	_, surplus := s.differences(maps.Keys(s.dirty))
	if len(surplus) > 0 {
		if err := ipset.Delete(s.Name, surplus); err != nil {
			s.known = false
			return err
		}
	}
	for _, e := range surplus {
		s.mark(e, false)
	}
	if s.known && len(s.dirty) > 0 {
		s.dirty = map[ipset.Element]struct{}{} // a map keeps the room that the first fill took
	}
	return nil
}

// elements are what the fixed sets hold of a port. What no set of the family can hold
// is left to the rules, which the kernel refuses: one bad port must not fail the set
// for all. Endpoints that serve no new flows are among them, for those that they have.
func elements(key desired.PortKey, p desired.Port) map[string][]ipset.Element {
	elements := map[string][]ipset.Element{}
	number := protocolNumber(key.Protocol)
	if number == 0 {
		return elements
	}
	endpoints := slices.Concat(p.Cluster, p.Local, p.Serving)
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	for _, e := range slices.Compact(endpoints) {
		if addr.FamilyOf(e.Addr()) == key.Family && e.Port() != 0 {
			elements[ofEndpoints] = append(elements[ofEndpoints], ipset.Element{
				Prefix: addr.HostPrefix(e.Addr()), Second: e.Addr(), Protocol: number, Port: e.Port(),
			})
		}
	}
	for _, a := range slices.Concat([]netip.Addr{p.ClusterIP}, p.ExternalIPs, p.VIPs) {
		if a.IsValid() && addr.FamilyOf(a) == key.Family && p.Port != 0 {
			elements[ofDestinations] = append(elements[ofDestinations], ipset.Element{
				Prefix: addr.HostPrefix(a), Protocol: number, Port: p.Port,
			})
		}
	}
	if p.NodePort != 0 {
		elements[ofNodePorts] = portElements([]uint16{p.NodePort})
	}
	return elements
}

// podElements are the prefixes of one family as a hash:net set takes them: it
// knows no prefix of length 0, so that "everything" becomes two halves.
func podElements(pods []netip.Prefix, family addr.Family) []ipset.Element {
	var elements []ipset.Element
	for _, p := range pods {
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

// portElements are the elements of a set of ports.
func portElements(ports []uint16) []ipset.Element {
	elements := make([]ipset.Element, 0, len(ports))
	for _, port := range ports {
		elements = append(elements, ipset.Element{Port: port})
	}
	return elements
}

// sets are all ipsets of one family.
type sets struct {
	family addr.Family
	log    *slog.Logger
	// fixed are there whatever Services exist, by what they are of.
	fixed map[string]*set
	// clients are the wanted lists of clients, by name, with how many want each.
	clients map[string]int
	dirty   map[string]struct{}
	// kernel are all other sets of ours that the kernel has: the lists of clients,
	// and what an earlier version left. nil: unknown.
	kernel map[string]struct{}
	held   map[string]held // not wanted, but in use by rules
	// failure is why some lack what they should hold.
	failure error
}

// held is a set that cannot be destroyed yet.
type held struct {
	since time.Time
	told  bool
}

func newSets(s style, log *slog.Logger) *sets {
	return &sets{
		family: s.family, log: log, fixed: s.fixedSets(),
		clients: map[string]int{}, dirty: map[string]struct{}{}, held: map[string]held{},
	}
}

// use counts the users of what a port puts into sets up (by 1) or down (by -1).
func (s *sets) use(elements map[string][]ipset.Element, clients []string, by int) {
	for of, all := range elements {
		for _, e := range all {
			s.fixed[of].use(e, int32(by))
		}
	}
	for _, name := range clients {
		s.clients[name] += by
		if s.clients[name] == 0 {
			delete(s.clients, name)
		}
		s.dirty[name] = struct{}{}
	}
}

// forget has the lists looked for again: somebody may have taken them away.
func (s *sets) forget() { s.kernel = nil }

func (s *sets) load() error {
	all, err := ipset.All()
	if err != nil {
		return err
	}
	s.kernel = map[string]struct{}{}
	for _, head := range all {
		if s.owns(head) {
			s.kernel[head.Name] = struct{}{}
			s.dirty[head.Name] = struct{}{}
		}
	}
	for name := range s.clients {
		s.dirty[name] = struct{}{}
	}
	return nil
}

// owns tells whether a set is of ours, of this family, and none of the fixed ones.
// A set of no family belongs to IPv4.
func (s *sets) owns(head ipset.Header) bool {
	of := head.Family
	if of == 0 {
		of = addr.IPv4
	}
	if of != s.family || !strings.HasPrefix(head.Name, ours) {
		return false
	}
	for _, family := range addr.Families() {
		for of := range s.fixed {
			if head.Name == (style{family: family}).setName(of) {
				return false
			}
		}
	}
	return true
}

// fill makes and fills what is wanted and missing.
func (s *sets) fill() { s.failure = s.tryFill() }

func (s *sets) tryFill() error {
	var errs []error
	for _, each := range s.fixed {
		errs = append(errs, each.fill())
	}
	if s.kernel == nil {
		if err := s.load(); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	for name := range s.dirty {
		if _, has := s.kernel[name]; has || s.clients[name] == 0 {
			continue
		}
		// Rules say how long a client is remembered, so that a change of that keeps
		// the list. Without a timeout of its own the set could not have any.
		err := ipset.Create(ipset.Spec{
			Name: name, Type: ipset.HashIP, Family: s.family,
			MaxElements: maxElements, Timeout: 10800, ForceAdd: true,
		}, 0)
		if err != nil {
			return errors.Join(append(errs, err)...) // the next would fare no better
		}
		s.kernel[name] = struct{}{}
	}
	return errors.Join(errs...)
}

// trim removes what is not wanted any more. A set that rules of others use is
// emptied, and goes when they are gone.
func (s *sets) trim() error {
	var errs []error
	for _, each := range s.fixed {
		errs = append(errs, each.trim())
	}
	if s.kernel == nil {
		if err := s.load(); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	for name := range s.dirty {
		if _, has := s.kernel[name]; !has || s.clients[name] > 0 {
			delete(s.dirty, name)
			continue
		}
		h, waited := s.held[name]
		switch err := destroySet(name, !waited); {
		case err == nil:
			delete(s.kernel, name)
			delete(s.held, name)
			delete(s.dirty, name)
		case !errors.Is(err, ipset.ErrBusy):
			errs = append(errs, err)
		case !waited:
			s.held[name] = held{since: time.Now()}
			errs = append(errs, ipset.Flush(name))
		case !h.told && time.Since(h.since) > time.Second:
			s.held[name] = held{h.since, true}
			s.log.Warn("A set of ours that is not needed any more is in use by somebody else's rules; it is removed when they are gone", "ipset", name)
		}
	}
	return errors.Join(errs...)
}

// check looks whether the fixed sets are as they were left.
func (s *sets) check() error {
	var errs []error
	for _, each := range s.fixed {
		errs = append(errs, each.check())
	}
	return errors.Join(errs...)
}

// differ tells, without a change, whether check would find anything.
func (s *sets) differ() bool {
	for _, each := range s.fixed {
		if each.known && !each.asLeft() {
			return true
		}
	}
	return false
}

// repairs counts how often a set was found changed by others.
func (s *sets) repairs() int {
	n := 0
	for _, each := range s.fixed {
		n += each.repairs
	}
	return n
}

// destroySet removes a set. The kernel lets go of the rules of nf_tables that
// used it a moment after they are gone, so a busy set is tried again.
func destroySet(name string, patiently bool) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := ipset.Destroy(name)
		if err == nil || errors.Is(err, ipset.ErrMissing) {
			return nil
		}
		if !patiently || wait > 128*time.Millisecond || !errors.Is(err, ipset.ErrBusy) {
			return err
		}
		time.Sleep(wait)
	}
}

// destroySets removes all sets of ours, of both families.
func destroySets() error {
	all, err := ipset.All()
	if err != nil {
		return err
	}
	var errs []error
	for _, head := range all {
		if strings.HasPrefix(head.Name, ours) {
			errs = append(errs, destroySet(head.Name, true))
		}
	}
	return errors.Join(errs...)
}
