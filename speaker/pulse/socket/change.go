package socket

import (
	"fmt"
	"maps"
	"net/netip"
)

// change is how the values of addresses differ from those before.
type change[V any] struct {
	Set  map[netip.Addr]V `json:",omitempty"`
	Gone []netip.Addr     `json:",omitempty"`
}

func (c change[V]) none() bool { return len(c.Set)+len(c.Gone) == 0 }

// changeOf returns how the values differ from those before.
func changeOf[V any](before, now map[netip.Addr]V, equal func(a, b V) bool) (c change[V]) {
	for a, value := range now {
		if old, had := before[a]; had && equal(old, value) {
			continue
		}
		if c.Set == nil {
			c.Set = map[netip.Addr]V{}
		}
		c.Set[a] = value
	}
	for a := range before {
		if _, still := now[a]; !still {
			c.Gone = append(c.Gone, a)
		}
	}
	return c
}

// after returns the values after the change, and leaves those before as they are. It returns an error for a change that
// is not one of these.
func (c change[V]) after(before map[netip.Addr]V) (map[netip.Addr]V, error) {
	if c.none() {
		return before, nil
	}
	now := make(map[netip.Addr]V, len(before)+len(c.Set))
	maps.Copy(now, before)
	for _, a := range c.Gone {
		if _, had := now[a]; !had {
			return nil, fmt.Errorf("%v is gone, and was not there", a)
		}
		delete(now, a)
	}
	for a, value := range c.Set {
		if !a.IsValid() {
			return nil, fmt.Errorf("%+v of no address", value)
		}
		now[a] = value
	}
	return now, nil
}
