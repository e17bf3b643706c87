package iptables

import (
	"cmp"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/forwarding/ipset"
)

// maxClients bounds the list of an endpoint, and allClients what the lists of a family hold together. A full list takes 3 MiB of the
// kernel's memory, which no container accounts for, and all of them 200 MiB: a sender with a prefix of IPv6 fills one in seconds, and those
// of all endpoints of a Service, of which there may be thousands.
const (
	maxClients = 1 << 16
	allClients = 1 << 22
)

// recount is how often the lists of clients are counted: the kernel tells of all sets at once,
// which takes a millisecond for each thousand.
const recount = 10 * time.Second

// count finds out which lists of clients are full, and empties those that are too much together, which count as full; unless that was
// done a moment ago or there is none. What cannot be asked shows elsewhere.
func (s *sets) count() {
	if len(s.clients) == 0 {
		s.full = 0
		return
	}
	if time.Since(s.counted) < recount {
		return
	}
	all, err := ipset.All()
	if err != nil {
		return
	}
	s.counted = time.Now()
	lists := slices.DeleteFunc(all, func(head ipset.Header) bool { return s.clients[head.Name] == 0 })
	emptied := excess(lists, s.all)
	for _, name := range emptied {
		_ = ipset.Flush(name) // what failed is there the next time
	}
	s.full = len(emptied)
	for _, head := range lists[len(emptied):] {
		if head.Elements >= int(s.room) {
			s.full++
		}
	}
}

// excess sorts lists by how many clients they hold, most first, and returns the first ones, without which the others hold no more than so many clients together: those of
// a Service that few clients use are not the cause.
func excess(lists []ipset.Header, most int) (names []string) {
	sum := 0
	for _, head := range lists {
		sum += head.Elements
	}
	slices.SortFunc(lists, func(a, b ipset.Header) int {
		return cmp.Or(cmp.Compare(b.Elements, a.Elements), cmp.Compare(a.Name, b.Name))
	})
	for _, head := range lists {
		if sum <= most {
			break
		}
		sum -= head.Elements
		names = append(names, head.Name)
	}
	return names
}
