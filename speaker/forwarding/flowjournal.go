package forwarding

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
)

// flowJournal is a note in the kernel of UDP destinations that are about to go, and of their
// endpoints, from before their rules go until their flows have: the next process reads it if this
// one ends in between. The note is an ipset for each family, which no rule uses. Its name does not
// begin with FAIRLEAD-, a prefix that the iptables backend owns: it destroys all sets of it that it does
// not want. Where there are no ipsets, as nftables needs none, there is no note. The zero value takes none.
type flowJournal struct {
	noted map[addr.Family]bool // there may be a note
	whole bool                 // of all that is missing
}

// newFlowJournal takes notes, and takes it that the process before may have left some.
func newFlowJournal() flowJournal {
	return flowJournal{noted: map[addr.Family]bool{addr.IPv4: true, addr.IPv6: true}}
}

func journalSet(family addr.Family) ipset.Spec {
	return ipset.Spec{
		Name: fmt.Sprintf("fairlead-journal%d", family), Type: ipset.HashIPPort, Family: family, MaxElements: 1 << 20,
	}
}

// note writes what is to be left before an Apply that makes changes. Those that were missing before are in the note if it is whole.
func (j *flowJournal) note(changes iter.Seq[change]) {
	if j.noted == nil {
		return
	}
	j.whole = true
	elements := map[addr.Family]map[ipset.Element]bool{}
	for change := range changes {
		if change.from == nil {
			continue
		}
		stay := map[destination]bool{}
		if change.to != nil {
			for at := range change.to.destinations(change.key) {
				stay[at] = true
			}
		}
		family := change.key.Family
		take := func(at netip.AddrPort) {
			if elements[family] == nil {
				elements[family] = map[ipset.Element]bool{}
			}
			elements[family][ipset.Element{Prefix: addr.HostPrefix(at.Addr()), Protocol: view.UDP.Number(), Port: at.Port()}] = true
		}
		for at := range change.from.destinations(change.key) {
			if stay[at] {
				continue
			}
			if !at.Addr().IsValid() { // a set has no room for a NodePort alone
				at.AddrPort = netip.AddrPortFrom(anyNode(family), at.Port())
			}
			take(at.AddrPort)
			for _, e := range change.from.serving {
				take(e)
			}
		}
	}
	for family, some := range elements {
		// It may be there already. What fails leaves no note, and is tried again.
		_ = ipset.Create(journalSet(family), len(some))
		j.whole = ipset.Add(journalSet(family).Name, slices.Collect(maps.Keys(some))) == nil && j.whole
		j.noted[family] = true
	}
}

// anyNode stands for all addresses of the node in a note.
func anyNode(family addr.Family) netip.Addr {
	if family == addr.IPv6 {
		return netip.IPv6Loopback()
	}
	return addr.Loopback().Addr().Next()
}

// forget removes the notes once the flows are gone.
func (j *flowJournal) forget() {
	for family := range j.noted {
		_ = ipset.Destroy(journalSet(family).Name) // what is left tells of flows that are gone
	}
	clear(j.noted)
	j.whole = false
}

// removeJournals removes the notes of whichever process. It returns the kernel's errors; no note and no
// support for ipsets are none.
func removeJournals() error {
	var errs []error
	for _, family := range addr.Families() {
		if err := ipset.Destroy(journalSet(family).Name); !errors.Is(err, ipset.ErrMissing) && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// journaled reads the note of an earlier process: destinations and endpoints are in one. Only
// a translated flow from one to another is taken for an orphan.
func journaled(family addr.Family, _ view.Protocol) (services, endpoints []netip.AddrPort, err error) {
	elements, err := ipset.Elements(journalSet(family).Name)
	if err != nil {
		if errors.Is(err, ipset.ErrMissing) || errors.Is(err, unix.EINVAL) { // the latter without the kernel's module
			err = nil
		}
		return nil, nil, err
	}
	for _, e := range elements {
		at := netip.AddrPortFrom(e.Prefix.Addr(), e.Port)
		endpoints = append(endpoints, at)
		if at.Addr() == anyNode(family) {
			at = nodePort(family, view.UDP, e.Port).AddrPort
		}
		services = append(services, at)
	}
	return services, endpoints, nil
}
