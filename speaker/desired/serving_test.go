package desired_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// TestServing holds that every endpoint that serves is named to those who keep
// its flows, whatever hides it from new ones.
func TestServing(t *testing.T) {
	c := cluster(
		service(local, func(s *view.Service) { s.InternalLocal = true }),
		endpoint("10.0.0.5", "b", forZones("z-a")), // not local to a
		endpoint("10.0.0.4", "b", forZones("z-b")), // meant for another zone
		endpoint("10.0.0.3", "a", terminating),     // hidden by those that are ready
		endpoint("10.0.0.2", "a", dead),
		endpoint("10.0.0.1", "a", forZones("z-a"), func(e *view.Endpoint) { e.Serving = false }), // ready says enough
		endpoint("fd00::1", "a"),
	)
	got := port(t, c, "a", addr.IPv4)
	want := targets("10.0.0.1:8080", "10.0.0.3:8080", "10.0.0.4:8080", "10.0.0.5:8080")
	if diff := cmp.Diff(want, got.Serving, compare); diff != "" {
		t.Errorf("Serving (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(targets("10.0.0.1:8080", "10.0.0.5:8080"), got.Cluster, compare); diff != "" {
		t.Errorf("Cluster (-want +got):\n%s", diff)
	}
	other := got
	other.Serving = targets("10.0.0.1:8080")
	if got.Equal(other) {
		t.Error("ports that differ in Serving are equal")
	}
}

// TestListed holds that every endpoint is named to those who keep its connections, whatever
// is said of it or of its node.
func TestListed(t *testing.T) {
	c := cluster(
		service(),
		endpoint("10.0.0.4", "b"), // on a node that has fallen
		endpoint("10.0.0.3", "a", terminating),
		endpoint("10.0.0.2", "a", dead),
		endpoint("10.0.0.1", "a"),
		endpoint("fd00::1", "a"),
	)
	c.Fallen = map[string]struct{}{"b": {}}
	got := port(t, c, "a", addr.IPv4)
	for _, set := range []struct {
		name      string
		got, want []netip.AddrPort
	}{
		{"Cluster", got.Cluster, targets("10.0.0.1:8080")},
		{"Serving", got.Serving, targets("10.0.0.1:8080", "10.0.0.3:8080")},
		{"Listed", got.Listed, targets("10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.4:8080")},
		{"Endpoints", got.Endpoints(), got.Listed},
	} {
		if diff := cmp.Diff(set.want, set.got, compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", set.name, diff)
		}
	}
	other := got
	other.Listed = targets("10.0.0.1:8080")
	if got.Equal(other) {
		t.Error("ports that differ in Listed are equal")
	}
}
