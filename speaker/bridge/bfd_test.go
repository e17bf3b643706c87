package bridge

import (
	"maps"
	"slices"
	"testing"

	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// TestPathsThatFail: only a failure that happens while somebody watches ends BGP.
func TestPathsThatFail(t *testing.T) {
	counts := map[string]uint64{}
	for _, step := range []struct {
		what   string
		states map[string]bfd.Status
		want   []string
	}{
		{"failures of before are no news", map[string]bfd.Status{"a": {State: bfd.Up, Failures: 3}, "b": {State: bfd.Down}}, nil},
		{"nothing happens", map[string]bfd.Status{"a": {State: bfd.Up, Failures: 3}, "b": {State: bfd.Down}}, nil},
		{"one fails, the other comes up", map[string]bfd.Status{"a": {State: bfd.Down, Failures: 4, Diag: bfd.Expired}, "b": {State: bfd.Up}}, []string{"a"}},
		{"it stays down", map[string]bfd.Status{"a": {State: bfd.Down, Failures: 4}, "b": {State: bfd.Up}}, nil},
		{"an administrator ends one", map[string]bfd.Status{"a": {State: bfd.Up, Failures: 4}, "b": {State: bfd.Down, Diag: bfd.NeighborDown}}, nil},
		{"it was down for a moment", map[string]bfd.Status{"a": {State: bfd.Up, Failures: 5}, "b": {State: bfd.Down}}, []string{"a"}},
		{"pulse is away", nil, nil},
		{"a new pulse counts from 0", map[string]bfd.Status{"a": {State: bfd.Up}}, nil},
		{"and its first failure is one", map[string]bfd.Status{"a": {State: bfd.Down, Failures: 1}}, []string{"a"}},
	} {
		if got := slices.Sorted(maps.Keys(failed(counts, step.states))); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q failed, want %q", step.what, got, step.want)
		}
	}
}
