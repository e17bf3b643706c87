package forwarding

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
	"fairlead.dev/fairlead/speaker/forwarding/egress"
	"fairlead.dev/fairlead/speaker/outcome"
)

// scripted is a backend that says what a test has it say.
type scripted struct {
	Backend
	missing        outcome.Missing
	err            error
	rules, repairs int
	full           int // lists of clients
}

func (s *scripted) Apply(context.Context, desired.Forwarding) (outcome.Missing, error) {
	return s.missing, s.err
}

func (s *scripted) AffinityOverflows(family addr.Family) int {
	if family == addr.IPv6 {
		return s.full
	}
	return 0
}

func (s *scripted) Tally(family addr.Family) (rules, repairs int) {
	if family == addr.IPv4 {
		return s.rules, s.repairs
	}
	return 0, 0
}

// assembled forwards by a backend, deletes flows in some way, and leaves alone the rest of the host.
func assembled(t *testing.T, backend Backend, del deleteFlows) *Forwarder {
	t.Helper()
	setting := filepath.Join(t.TempDir(), "route_localnet")
	if err := os.WriteFile(setting, []byte(localnetOff), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Forwarder{
		pings: &pings{ports: map[desired.PortKey][]netip.Addr{}, answered: map[netip.Addr]int{}}, // no connection table is looked at
		Gauge: backend, backend: backend, families: thisHost(), metrics: newMetrics(nil),
		flows: newConntrackReconciler(del, nil, flowJournal{}), modes: &modeSwitch{done: true},
		host:     &host{routes: func() (egress.Host, error) { return egress.Host{}, nil }, off: func(addr.Family, []string) string { return "" }},
		localnet: &routeLocalnet{setting: localnet(setting), restored: true},
		sysctls:  sysctl.New("", sysctl.Want{}, slog.New(slog.DiscardHandler)),
	}
}

// noFlows is an empty connection table.
func noFlows(addr.Family, view.Protocol, sync.Locker, func(conntrack.Flow) bool) (int, error) {
	return 0, nil
}

func portKey(name string) desired.PortKey {
	return desired.PortKey{Service: view.Ref{Namespace: "shop", Name: name}, Protocol: view.TCP, Family: addr.IPv4}
}

func TestSyncsAreCountedByKind(t *testing.T) {
	registry, backend := prometheus.NewRegistry(), &scripted{}
	m, b := newMetrics(registry), assembled(t, backend, noFlows)
	b.metrics = m
	apply := func(revision, since uint64) {
		_, err := b.Apply(t.Context(), desired.Forwarding{Delta: desired.Delta[desired.PortKey]{Revision: revision, Since: since}})
		if !errors.Is(err, backend.err) {
			t.Errorf("error %v is swallowed, got %v", backend.err, err)
		}
	}
	expect := func(when string, want map[string]uint64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for _, family := range families {
			for _, metric := range family.Metric {
				if strings.HasSuffix(family.GetName(), "_sync_duration_seconds") {
					got[metric.Label[0].GetValue()] = metric.GetHistogram().GetSampleCount()
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	apply(1, 0)
	expect("the first", map[string]uint64{"full": 1})
	apply(2, 1)
	apply(2, 1)
	expect("a change, and nothing", map[string]uint64{"full": 1, "partial": 1, "check": 1})
	apply(4, 3)
	expect("a change that was not seen", map[string]uint64{"full": 2, "partial": 1, "check": 1})
	backend.err, backend.missing = errors.New("the lock"), outcome.Missing{portKey("web"): {}}
	apply(5, 4)
	apply(5, 4)
	expect("a failure and another attempt", map[string]uint64{"full": 3, "partial": 2, "check": 1})
	backend.err, backend.missing = &outcome.FamilyError{Family: addr.IPv6, Err: errors.New("where pods send from")}, nil
	apply(5, 4)
	expect("in one family", map[string]uint64{"full": 4, "partial": 2, "check": 1})
	// A family that the host has not at all fails nothing.
	backend.err = &outcome.FamilyError{Family: addr.IPv6, Err: outcome.Caused(outcome.ReasonFamilyAbsent, errors.New("none"))}
	six := portKey("web")
	six.Family = addr.IPv6
	backend.missing = outcome.Missing{six: {}}
	apply(6, 5)
	apply(7, 6)
	expect("without one", map[string]uint64{"full": 5, "partial": 3, "check": 1})
	for family, want := range map[string]float64{"IPv4": 2, "IPv6": 1} {
		if got := testutil.ToFloat64(m.failures.WithLabelValues(family)); got != want {
			t.Errorf("%s: %v failures, want %v", family, got, want)
		}
	}
}

func TestRulesAndRepairs(t *testing.T) {
	backend := &scripted{}
	m, b := newMetrics(prometheus.NewRegistry()), assembled(t, backend, noFlows)
	b.metrics = m
	for _, step := range []struct {
		rules, repairs int
		want           float64 // repairs in all
	}{{17, 3, 3}, {19, 3, 3}, {19, 5, 5}, {2, 0, 5}, {2, 1, 6}} {
		backend.rules, backend.repairs = step.rules, step.repairs
		if _, err := b.Apply(t.Context(), desired.Forwarding{}); err != nil {
			t.Fatal(err)
		}
		if rules, repairs := testutil.ToFloat64(m.rules.WithLabelValues("IPv4")), testutil.ToFloat64(m.repairs.WithLabelValues("IPv4")); rules != float64(step.rules) || repairs != step.want {
			t.Errorf("%v rules and %v repairs, want %d and %v", rules, repairs, step.rules, step.want)
		}
	}
}

func TestFullListsOfClientsAreCounted(t *testing.T) {
	backend := &scripted{}
	m, b := newMetrics(prometheus.NewRegistry()), assembled(t, backend, noFlows)
	b.metrics = m
	for _, full := range []int{0, 3, 0} {
		backend.full = full
		if _, err := b.Apply(t.Context(), desired.Forwarding{}); err != nil {
			t.Fatal(err)
		}
		for family, want := range map[string]int{"IPv4": 0, "IPv6": full} {
			if got := testutil.ToFloat64(m.full.WithLabelValues(family)); got != float64(want) {
				t.Errorf("%s: %v lists are full, want %d", family, got, want)
			}
		}
	}
}

func TestDeletedFlowsAreCounted(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	lost := errors.New("netlink")
	n, err := m.timed(func(addr.Family, view.Protocol, sync.Locker, func(conntrack.Flow) bool) (int, error) { return 7, lost })(addr.IPv6, view.UDP, nil, nil)
	if n != 7 || !errors.Is(err, lost) || testutil.ToFloat64(m.flows.WithLabelValues("IPv6")) != 7 {
		t.Errorf("%d flows, %v, and another number in the metric", n, err)
	}
}

// TestPortsWithoutLocalEndpoints holds the count that goes by changes against one from
// scratch.
func TestPortsWithoutLocalEndpoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := newUnserved()
		want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			want.Since, want.Changed = want.Revision, map[desired.PortKey]struct{}{}
			want.Revision++
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				key := portKey(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "service"))
				key.Family = rapid.SampledFrom(addr.Families()).Draw(t, "family")
				port := desired.Port{
					Port: 80, Anywhere: rapid.Bool().Draw(t, "anywhere"),
					InternalLocal: rapid.Bool().Draw(t, "internal"), ExternalLocal: rapid.Bool().Draw(t, "external"),
				}
				if port.Anywhere && rapid.Bool().Draw(t, "local") {
					port.Local = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}
				}
				want.Ports[key] = port
				if rapid.Bool().Draw(t, "gone") {
					delete(want.Ports, key)
				}
				want.Changed[key] = struct{}{}
			}
			if rapid.Bool().Draw(t, "unseen") {
				continue
			}
			u.update(want)
			count := map[addr.Family][2]int{}
			for key, p := range want.Ports {
				of := count[key.Family]
				dropped := p.Anywhere && len(p.Local) == 0
				if dropped && p.InternalLocal {
					of[0]++
				}
				if dropped && p.ExternalLocal {
					of[1]++
				}
				count[key.Family] = of
			}
			for _, family := range addr.Families() {
				if u.count[family] != count[family] {
					t.Fatalf("%v: counted %d, want %d of internal and external policies", family, u.count[family], count[family])
				}
			}
		}
	})
}
