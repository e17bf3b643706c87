package verify_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

func TestCommunities(t *testing.T) {
	t.Parallel()
	named := func(name string, age int64, values map[string]view.CommunityValue) *view.Community {
		return &view.Community{Name: name, Created: time.Unix(-age, 0), Values: values}
	}
	large := func(n uint32) view.CommunityValue { return view.CommunityValue{Large: &view.LargeCommunity{Global: n}} }
	c := &view.Cluster{
		BGPAdvertisements: map[string]*view.BGPAdvertisement{
			"fine": {Name: "fine", CommunityNames: []string{"a", "b"}},
			"vain": {Name: "vain", CommunityNames: []string{"a", "c"}},
		},
		Communities: map[string]*view.Community{
			"younger": named("younger", 1, map[string]view.CommunityValue{"a": {Standard: 1}, "b": large(2), "same": large(3)}),
			"older":   named("older", 2, map[string]view.CommunityValue{"a": {Standard: 2}, "same": large(3)}),
		},
	}
	want := []problem.Problem{
		{
			Object: problem.Object{Kind: "BGPAdvertisement", Name: "vain"}, Reason: "CommunityNotFound",
			Message: `spec.communities: no Community has the name "c", so that nothing is announced by this advertisement: add it to one, or correct it`,
		},
		{
			Object: problem.Object{Kind: "Community", Name: "younger"}, Reason: "CommunityDuplicate", Advisory: true,
			Message: `spec.communities: the name "a" is that of Community "older", which is older and has another value for it, which is used: remove one of the two`,
		},
	}
	if diff := cmp.Diff(want, check(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
