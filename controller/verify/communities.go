package verify

import (
	"maps"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// nameless are the names of communities in an advertisement that nothing has.
func nameless(object problem.Object, names []string) []problem.Problem {
	problems := make([]problem.Problem, 0, len(names))
	for _, name := range names {
		problems = append(problems, problem.New(object, ReasonCommunityNotFound,
			"spec.communities: no Community has the name %q, so that nothing is announced by this advertisement: add it to one, or correct it", name))
	}
	return problems
}

// ambiguous finds names of communities that an older Community has for another value.
func ambiguous(c *view.Cluster) []problem.Problem {
	var problems []problem.Problem
	owners := map[string]*view.Community{}
	for _, community := range c.CommunitiesByAge() {
		for _, name := range slices.Sorted(maps.Keys(community.Values)) {
			owner := owners[name]
			switch {
			case owner == nil:
				owners[name] = community
			case !owner.Values[name].Equal(community.Values[name]):
				problems = append(problems, problem.Advice(community.Object(), ReasonCommunityDuplicate,
					"spec.communities: the name %q is that of Community %q, which is older and has another value for it, which is used: remove one of the two", name, owner.Name))
			}
		}
	}
	return problems
}
