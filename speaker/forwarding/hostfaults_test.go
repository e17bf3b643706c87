package forwarding

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestOneClusterIPIsKnown: whichever ports come and go, the host knows the ClusterIP of one that there is.
func TestOneClusterIPIsKnown(t *testing.T) {
	key := func(name string) desired.PortKey {
		return desired.PortKey{Service: view.Ref{Namespace: "a", Name: name}, Family: addr.IPv4}
	}
	first, second := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.96.0.2")
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	h := &host{}
	for _, step := range []struct {
		put   map[string]netip.Addr
		gone  string
		knows netip.Addr
	}{
		{},
		{put: map[string]netip.Addr{"first": first}, knows: first},
		{put: map[string]netip.Addr{"second": second}, knows: first},
		{gone: "first", knows: second},
		{put: map[string]netip.Addr{"second": first}, knows: first},
		{gone: "second"},
	} {
		changed := map[desired.PortKey]struct{}{}
		for name, ip := range step.put {
			want.Ports[key(name)] = desired.Port{ClusterIP: ip}
			changed[key(name)] = struct{}{}
		}
		if step.gone != "" {
			delete(want.Ports, key(step.gone))
			changed[key(step.gone)] = struct{}{}
		}
		want.Advance(changed)
		h.note(want)
		if got := h.clusterIPs[addr.IPv4].Addr; got != step.knows {
			t.Errorf("after %+v the host knows %s, want %s", step, got, step.knows)
		}
	}
}
