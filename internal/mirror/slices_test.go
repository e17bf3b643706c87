package mirror

import (
	"net/netip"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/view"
)

// TestEndpointsFollowTheirSlices: a slice adds to a Service, changes, moves to another Service by its label
// and goes. Only Services with other endpoints than before are reported, and nothing is left.
func TestEndpointsFollowTheirSlices(t *testing.T) {
	t.Parallel()
	web, shop := view.Ref{Namespace: "n", Name: "web"}, view.Ref{Namespace: "n", Name: "shop"}
	at := func(texts ...string) []view.Endpoint {
		all := make([]view.Endpoint, 0, len(texts))
		for _, text := range texts {
			all = append(all, view.Endpoint{Addr: netip.MustParseAddr(text)})
		}
		return all
	}
	addrs := func(endpoints []view.Endpoint) (all []string) {
		for _, e := range endpoints {
			all = append(all, e.Addr.String())
		}
		return all
	}
	s := NewSlices()
	for _, step := range []struct {
		slice     string
		service   view.Ref
		endpoints []view.Endpoint
		changed   []view.Ref
		web, shop []string
	}{
		{"b", web, at("10.0.0.2"), []view.Ref{web}, []string{"10.0.0.2"}, nil},
		{"a", web, at("10.0.0.1"), []view.Ref{web}, []string{"10.0.0.1", "10.0.0.2"}, nil},
		{"a", web, at("10.0.0.1"), nil, []string{"10.0.0.1", "10.0.0.2"}, nil},
		{"a", web, at("10.0.0.3"), []view.Ref{web}, []string{"10.0.0.3", "10.0.0.2"}, nil},
		{"a", shop, at("10.0.0.3"), []view.Ref{web, shop}, []string{"10.0.0.2"}, []string{"10.0.0.3"}},
		{"b", view.Ref{}, nil, []view.Ref{web}, nil, []string{"10.0.0.3"}},
		{"b", view.Ref{}, nil, nil, nil, []string{"10.0.0.3"}},
		{"a", shop, at(), []view.Ref{shop}, nil, nil},
		{"a", view.Ref{}, nil, []view.Ref{shop}, nil, nil},
	} {
		changed := s.Set(client.ObjectKey{Namespace: "n", Name: step.slice}, step.service, step.endpoints)
		if !slices.Equal(changed, step.changed) || !slices.Equal(addrs(s.Of(web)), step.web) || !slices.Equal(addrs(s.Of(shop)), step.shop) {
			t.Errorf("%+v: changed %v, endpoints %v and %v", step, changed, addrs(s.Of(web)), addrs(s.Of(shop)))
		}
	}
	if left := slices.Collect(s.Services()); s.Len()+len(left) > 0 {
		t.Errorf("%d slices are left, of %v", s.Len(), left)
	}
}
