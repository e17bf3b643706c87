package mirror

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/view"
)

// Slices mirrors the endpoints of Services by the EndpointSlices that list them. It is not for several
// goroutines at once.
type Slices struct {
	services map[client.ObjectKey]view.Ref // which Service a slice is for; its label may change
	parts    map[view.Ref][]part           // sorted by slice
}

// part are the endpoints of a Service that one slice lists. They are replaced, never written to.
type part struct {
	slice     string
	endpoints []view.Endpoint
}

// NewSlices returns a mirror without slices.
func NewSlices() Slices {
	return Slices{map[client.ObjectKey]view.Ref{}, map[view.Ref][]part{}}
}

// Len returns how many slices there are.
func (s *Slices) Len() int { return len(s.services) }

// Services visits the Services that have slices.
func (s *Slices) Services() iter.Seq[view.Ref] { return maps.Keys(s.parts) }

// Service returns the Service that a slice is for.
func (s *Slices) Service(slice client.ObjectKey) view.Ref { return s.services[slice] }

// Set takes over a slice of a Service, or that it has none any more (nil), and returns the Services that
// changed their endpoints.
func (s *Slices) Set(slice client.ObjectKey, service view.Ref, endpoints []view.Endpoint) (changed []view.Ref) {
	if before, had := s.services[slice]; had && (endpoints == nil || service != before) {
		delete(s.services, slice)
		s.join(before, slice.Name, nil)
		changed = append(changed, before)
	}
	if endpoints != nil {
		s.services[slice] = service
		if s.join(service, slice.Name, endpoints) {
			changed = append(changed, service)
		}
	}
	return changed
}

// join replaces the part of one slice, and reports whether that is another.
func (s *Slices) join(service view.Ref, slice string, endpoints []view.Endpoint) bool {
	parts := s.parts[service]
	i, had := slices.BinarySearchFunc(parts, slice, func(p part, slice string) int { return strings.Compare(p.slice, slice) })
	switch {
	case had && endpoints == nil:
		parts = slices.Delete(parts, i, i+1)
	case had && reflect.DeepEqual(parts[i].endpoints, endpoints):
		return false
	case had:
		parts[i].endpoints = endpoints
	default:
		parts = slices.Insert(parts, i, part{slice, endpoints})
	}
	if s.parts[service] = parts; len(parts) == 0 {
		delete(s.parts, service)
	}
	return true
}

// Of returns the endpoints of a Service over all its slices.
func (s *Slices) Of(service view.Ref) []view.Endpoint {
	parts := s.parts[service]
	if len(parts) == 1 {
		return parts[0].endpoints
	}
	var joined []view.Endpoint
	for _, p := range parts {
		joined = append(joined, p.endpoints...)
	}
	return joined
}
