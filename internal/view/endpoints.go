package view

import (
	"iter"
	"maps"
	"slices"
)

// shards are how many maps Endpoints are spread over.
const shards = 1 << 8

// Endpoints are those of each Service, over all its EndpointSlices: a map that is never
// written to. The next version of it shares all but the shards in which Services
// changed, so that a snapshot does not cost a copy of everything. The zero value has none.
type Endpoints struct {
	shards [shards]map[Ref][]Endpoint
}

// Of are the endpoints of one Service.
func (e *Endpoints) Of(service Ref) []Endpoint { return e.shards[shardOf(service)][service] }

// All visits the Services that have endpoints.
func (e *Endpoints) All() iter.Seq2[Ref, []Endpoint] {
	return func(yield func(Ref, []Endpoint) bool) {
		for _, shard := range e.shards {
			for service, endpoints := range shard {
				if !yield(service, endpoints) {
					return
				}
			}
		}
	}
}

// With are these endpoints but for those of some Services: none of them are left where
// the list is empty.
func (e *Endpoints) With(changed map[Ref][]Endpoint) Endpoints {
	next := *e
	var own [shards]bool // the shard is next's alone
	for service, endpoints := range changed {
		i := shardOf(service)
		switch {
		case own[i]:
		case next.shards[i] == nil:
			next.shards[i] = map[Ref][]Endpoint{}
		default:
			next.shards[i] = maps.Clone(next.shards[i])
		}
		own[i] = true
		if len(endpoints) == 0 {
			delete(next.shards[i], service)
		} else {
			next.shards[i][service] = endpoints
		}
	}
	return next
}

// On are the Services with endpoints on one of the nodes.
func (e *Endpoints) On(nodes map[string]struct{}) []Ref {
	var found []Ref
	for _, shard := range e.shards {
		for service, endpoints := range shard {
			if slices.ContainsFunc(endpoints, func(at Endpoint) bool { _, there := nodes[at.Node]; return there }) {
				found = append(found, service)
			}
		}
	}
	return found
}

// shardOf spreads Services evenly, by FNV-1a over their names.
func shardOf(service Ref) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, text := range [...]string{service.Namespace, service.Name} {
		for i := range len(text) {
			h = (h ^ uint32(text[i])) * prime
		}
	}
	return h % shards
}
