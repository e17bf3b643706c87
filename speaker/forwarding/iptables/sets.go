package iptables

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/outcome"
)

// sets are all ipsets of one family.
type sets struct {
	family addr.Family
	log    *slog.Logger
	// fixed are there whatever Services exist, by what they are of.
	fixed map[string]*set
	// clients are the wanted lists of clients, by name, with how many want each.
	clients map[string]int
	room    uint32 // for how many each has room
	all     int    // how many they may hold together
	full    int    // of those, when they were last counted
	counted time.Time
	looked  time.Time // when the numbers of elements of the fixed ones were last compared
	order   []*set    // the fixed ones as they are swept
	next    int       // of them
	pace    kernelwatch.Pace
	// dirty are the names that need a look, by their turns.
	dirty map[string]int
	turns int
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
	fixed := s.fixedSets()
	return &sets{
		family: s.family, log: log, fixed: fixed, order: slices.Collect(maps.Values(fixed)),
		clients: map[string]int{}, room: maxClients, all: allClients, dirty: map[string]int{}, held: map[string]held{},
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
		s.mark(name)
	}
}

// serves reports whether a port wants the endpoint.
func (s *sets) serves(endpoint netip.AddrPort, of view.Protocol) bool {
	if !endpoint.Addr().IsValid() {
		return false
	}
	p, _ := pack(endpointElement(endpoint, of))
	return s.fixed[ofEndpoints].members[p].users > 0
}

// mark has a list looked at, after those that have been marked before.
func (s *sets) mark(name string) {
	if _, marked := s.dirty[name]; !marked {
		s.turns++
		s.dirty[name] = s.turns
	}
}

// forget has the lists looked for again: others may have taken them away.
func (s *sets) forget() { s.kernel = nil }

// doubt has all sets read anew: another speaker may have changed them, and left as many elements in them.
func (s *sets) doubt() {
	s.forget()
	for _, each := range s.fixed {
		each.known = false
	}
}

func (s *sets) load() error {
	all, err := ipset.All()
	if err != nil {
		return err
	}
	s.kernel = map[string]struct{}{}
	for _, head := range all {
		if s.owns(head) {
			s.kernel[head.Name] = struct{}{}
			s.mark(head.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.clients)) {
		s.mark(name)
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
func (s *sets) fill() { s.failure = caused(s.tryFill()) }

// settled tells whether those sets hold what they should that are no port's.
func (s *sets) settled() bool {
	for _, of := range []string{ofPods, ofRanges, ofRefused, ofHealthPorts} {
		each := s.fixed[of]
		if !each.known {
			return false
		}
		if slices.ContainsFunc(each.exact, func(e ipset.Element) bool { p, _ := pack(e); return !each.members[p].present }) {
			return false
		}
	}
	return true
}

// caused tells the cause of what the kernel says of sets.
func caused(err error) error {
	switch {
	case errors.Is(err, ipset.ErrFull), errors.Is(err, ipset.ErrTooMany):
		return outcome.Caused(outcome.ReasonSetFull, fmt.Errorf("%w: the forwarding mode nftables needs no ipsets", err))
	case errors.Is(err, ipset.ErrType):
		return outcome.Caused(outcome.ReasonFeatureMissing, err)
	}
	return err
}

func (s *sets) tryFill() error {
	// Before anything is told of an address, its ports are there.
	errs := []error{s.fixed[ofDestinations].fill()}
	for of, each := range s.fixed {
		if of != ofDestinations {
			errs = append(errs, each.fill())
		}
	}
	if s.kernel == nil {
		if err := s.load(); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	for _, name := range s.lacking() {
		// Rules say how long a client is remembered, so that a change of that keeps
		// the list. Without a timeout of its own the set could not have any.
		err := ipset.Create(ipset.Spec{
			Name: name, Type: ipset.HashIP, Family: s.family,
			MaxElements: s.room, Timeout: 10800, ForceAdd: true,
		}, 0)
		if err != nil {
			return errors.Join(append(errs, err)...) // the next would fare no better
		}
		s.kernel[name] = struct{}{}
	}
	return errors.Join(errs...)
}

// lacking are the lists that are wanted and not in the kernel, in the order in which they came to
// be wanted, which is that of the names of their Services. The kernel may have no room for all: then
// it is not up to chance which Service gets one, and those that have one keep it.
func (s *sets) lacking() []string {
	var names []string
	for name := range s.dirty {
		if _, has := s.kernel[name]; !has && s.clients[name] > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(s.dirty[a], s.dirty[b]) })
	return names
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
		switch err := destroySet(name, waited); {
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
			s.log.Warn("A set of ours that is not needed any more is in use by another program's rules; it is removed when they are gone", "ipset", name)
		}
	}
	return errors.Join(errs...)
}

// check looks whether the fixed sets are as they were left: by the number of elements, and by what sweep saw. It
// returns the kernel's errors.
func (s *sets) check() error {
	var errs []error
	for _, each := range s.fixed {
		changed, err := each.check()
		if changed {
			s.log.Warn("Others changed a set of ours; filling it again", "ipset", each.Name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepEvery is how often one of the fixed sets of a family is read, so that each is read twice a second if it has few elements.
const sweepEvery = 50 * time.Millisecond

// sweep reads one of the fixed sets after the other, one at each call if it is time for one, and reports whether
// others put other elements into it: the kernel does not tell when a set changes, and its header has but their number.
func (s *sets) sweep() bool {
	if !s.pace.Due() {
		return false
	}
	began, each := time.Now(), s.order[s.next]
	s.next = (s.next + 1) % len(s.order)
	altered := each.sweep()
	s.pace.Read(began, sweepEvery, atRest)
	return altered
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

// destroySet removes a set. The kernel lets go of the rules of nf_tables that used it a moment after they are
// gone, longer on a busy node, so a busy set is tried again unless it is known to be held by other rules.
func destroySet(name string, held bool) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := ipset.Destroy(name)
		if err == nil || errors.Is(err, ipset.ErrMissing) {
			return nil
		}
		if held || wait > 512*time.Millisecond || !errors.Is(err, ipset.ErrBusy) {
			return err
		}
		nfnetlink.Settle()
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
			errs = append(errs, destroySet(head.Name, false))
		}
	}
	return errors.Join(errs...)
}
