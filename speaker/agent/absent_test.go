package agent_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// A host that has not a family at all announces the other one as any host does: at once, and it does
// not try again and again.
func TestAHostWithoutAFamilyIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{without: addr.IPv6}
		wake, _, stop := run(t, w)
		t.Cleanup(stop)
		six := netip.MustParseAddr("2001:db8::1")
		both := cluster(vip(1))
		pool, err := addr.ParseRange("2001:db8::/64")
		if err != nil {
			t.Fatal(err)
		}
		both.Pools["six"] = &view.Pool{Name: "six", Ranges: []netipx.IPRange{pool}}
		own := view.Ref{Namespace: "shop", Name: "six"}
		both.Services[own] = &view.Service{
			Ref: own, Type: view.LoadBalancer, ClusterIPs: []netip.Addr{netip.MustParseAddr("fd00:10::1")},
			VIPs: []netip.Addr{six}, Ports: []view.ServicePort{{Protocol: view.TCP, Port: 80}},
		}
		both.Endpoints = both.Endpoints.With(map[view.Ref][]view.Endpoint{own: {{
			Addr: netip.MustParseAddr("fd00::1"), Node: "a", Ready: true, Serving: true,
			Ports: []view.EndpointPort{{Protocol: view.TCP, Port: 8080}},
		}}})
		expect := func(when string, applied int, claims ...netip.Addr) {
			t.Helper()
			w.Lock()
			defer w.Unlock()
			if got := slices.SortedFunc(maps.Keys(w.answers.Claims), netip.Addr.Compare); !slices.Equal(got, claims) ||
				slices.Contains(claims, six) == slices.Contains(w.answers.Unable, six) || w.applied != applied {
				t.Errorf("%s: applied %d times, %v are answered for and not %v; want %d and %v", when, w.applied, got, w.answers.Unable, applied, claims)
			}
		}
		wake(both)
		expect("at once", 1, vip(1))
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		expect("in ten minutes", 11, vip(1))
		w.Lock()
		w.without = 0
		w.Unlock()
		wake(both) // by something else: the decision is the same
		expect("when it has come", 12, vip(1), six)
		w.Lock()
		w.without = addr.IPv6
		w.Unlock()
		wake(both)
		expect("when it has gone", 13, vip(1))
	})
}
