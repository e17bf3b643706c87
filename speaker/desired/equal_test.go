package desired_test

import (
	"fmt"
	"maps"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/equality"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestEqualForgetsNothing: no change is taken for none.
func TestEqualForgetsNothing(t *testing.T) {
	t.Parallel()
	equality.Sees(t, desired.Port.Equal)
	equality.Sees(t, desired.RouteAttrs.Equal)
}

// A comparison of ten thousand ports happens in each pass that does not know what changed.
func TestPortsThatAreAsWantedTakeNoMemory(t *testing.T) {
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	for i := range uint16(100) {
		want.Ports[desired.PortKey{Name: fmt.Sprint(i), Family: addr.IPv4}] = desired.Port{Port: i + 1}
	}
	held := maps.Clone(want.Ports)
	if took := testing.AllocsPerRun(10, func() { want.Changes(held, 0, nil) }); took > 10 {
		t.Errorf("to compare %d ports that are as wanted takes %.0f pieces of memory", len(held), took)
	}
	held[desired.PortKey{Name: "gone", Family: addr.IPv6}] = desired.Port{Port: 1}
	if changes := want.Changes(held, 0, desired.OfFamily(addr.IPv4)); len(changes) > 0 {
		t.Errorf("changes of IPv4 are %v, want none", changes)
	}
}
