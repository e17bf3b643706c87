package verify

import (
	"maps"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// nameless are the names of communities in an advertisement that nothing has.
func nameless(r *reach, object problem.Object, names []string) {
	for _, name := range names {
		r.add(object, ReasonCommunityNotFound,
			"spec.communities: no Community has the name %q, so that nothing is announced by this advertisement: add it to one, or correct it", name)
	}
}

// ambiguous finds names of communities that an older Community has for another value.
func ambiguous(r *reach) {
	owners := map[string]*view.Community{}
	for _, community := range r.cluster.CommunitiesByAge() {
		for _, name := range slices.Sorted(maps.Keys(community.Values)) {
			owner := owners[name]
			switch {
			case owner == nil:
				owners[name] = community
			case !owner.Values[name].Equal(community.Values[name]):
				r.advise(community.Object(), ReasonCommunityDuplicate,
					"spec.communities: the name %q is that of Community %q, which is older and has another value for it, which is used: remove one of the two", name, owner.Name)
			}
		}
	}
}
