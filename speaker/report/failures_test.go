package report_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/report"
)

// TestWhatFailsOfTheForwardingIsTold has a kernel that refuses a port, takes nothing of a
// family, and lacks a setting, with words that differ at each attempt: each is one Event and
// a metric, until it is over, and told anew if it comes back.
func TestWhatFailsOfTheForwardingIsTold(t *testing.T) {
	var got events
	registry := prometheus.NewRegistry()
	c := toldTo(&got)
	c.Metrics = registry
	r := report.New(c)
	attempts := 0
	failing := func(errs ...error) {
		attempts++
		o := anOutcome()
		o.Err = errors.Join(errors.New("something else"), errors.Join(errs...))
		r.Report(o)
	}
	key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: "web"}, Name: "http", Protocol: view.TCP, Family: addr.IPv4}
	refused := func() error {
		return &outcome.FamilyError{Family: addr.IPv4, Settled: true, Err: errors.Join(
			fmt.Errorf("halves: %w", &outcome.RefusedError{Key: key, Err: fmt.Errorf("line %d failed", attempts)}))}
	}
	broken := func() error {
		return &outcome.FamilyError{Family: addr.IPv6, Err: errors.Join(fmt.Errorf("has not ended after %d s", attempts))}
	}
	unset := func() error {
		return &outcome.SettingError{Of: "route_localnet", Err: errors.New("route_localnet is 0")}
	}
	metric := func(lines ...string) {
		t.Helper()
		text := ""
		if len(lines) > 0 {
			const head, begin, end = "# HELP fairlead_speaker_problems Objects that do not get what they ask for on this node.\n" +
				"# TYPE fairlead_speaker_problems gauge\n", "fairlead_speaker_problems{", "} 1\n"
			text = head + begin + strings.Join(lines, end+begin) + end
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "fairlead_speaker_problems"); err != nil {
			t.Error(err)
		}
	}
	all := []string{
		"node1 Warning ForwardingFailed: what is forwarded of IPv6 is not all as wanted; it is tried again: has not ended after 0 s",
		"node1 Warning SettingFailed: route_localnet is 0; it is tried again",
		`shop/web Warning ForwardingRefused: node node1: the kernel does not take port "http" (TCP, IPv4), which stays as it was: line 0 failed`,
	}
	failing(refused(), broken(), unset())
	got.want(t, all...)
	metric(`kind="Node",reason="ForwardingFailed"`, `kind="Node",reason="SettingFailed"`, `kind="Service",reason="ForwardingRefused"`)
	failing(refused(), broken(), unset())
	got.want(t)
	failing(refused())
	metric(`kind="Service",reason="ForwardingRefused"`)
	failing()
	metric()
	failing(unset(), &outcome.SettingError{Of: "nf_conntrack_max", Err: errors.New("nf_conntrack_max is 65536")})
	got.want(t, "node1 Warning SettingFailed: nf_conntrack_max is 65536; it is tried again", all[1])
	failing()
	got.want(t)
	metric()
	for range 2 { // pulse tells it again, and a pass goes well meanwhile
		r.Handover("connections of IPv4 may break")
		failing()
		metric(`kind="Node",reason="HandoverFailed"`)
	}
	got.want(t, "node1 Warning HandoverFailed: connections of IPv4 may break; it is tried again")
	r.Handover("")
	metric()
}

// TestOneNodeTellsWhatAllSee has two nodes read the same nonsense: one Event says so, of the
// first node whose speaker is ready.
func TestOneNodeTellsWhatAllSee(t *testing.T) {
	o := anOutcome()
	o.Cluster.Speakers = map[string]view.Speaker{"node0": {}, "node1": {Ready: true}, "node2": {Ready: true}}
	for _, object := range []problem.Object{{Kind: "EndpointSlice", Namespace: "shop", Name: "web-1"}, {Kind: "Service", Namespace: "shop", Name: "web"}} {
		o.Cluster.Problems = append(o.Cluster.Problems, problem.New(object, fromkube.ReasonUnreadable, "left out: all"))
	}
	for _, reason := range []string{desired.ReasonClusterIPTaken, desired.ReasonExternalIPRefused, desired.ReasonLifelineTaken, desired.ReasonVIPRefused, view.ReasonTooLarge} {
		o.Cluster.Problems = append(o.Cluster.Problems, problem.New(problem.Object{Kind: "Service", Namespace: "shop", Name: "web"}, reason, "left out"))
	}
	told := []string{
		"shop/web-1 Warning Unreadable: left out: all", "shop/web Warning ClusterIPTaken: left out", "shop/web Warning ExternalIPRefused: left out",
		"shop/web Warning LifelineTaken: left out", "shop/web Warning TooLarge: left out", "shop/web Warning Unreadable: left out: all", "shop/web Warning VIPRefused: left out",
	}
	for node, want := range map[string][]string{"node0": told, "node1": told, "node2": nil} {
		var got events
		c := toldTo(&got)
		c.Node = node
		r := report.New(c)
		r.Report(o)
		r.Report(o)
		got.want(t, want...)
	}
}

// TestManyProblemsAreToldInTurn: not all at once, none never, and those of one namespace do not hide those of another.
func TestManyProblemsAreToldInTurn(t *testing.T) {
	o := anOutcome()
	for i := range 50 {
		ref := view.Ref{Namespace: "a", Name: fmt.Sprintf("s%02d", i)}
		if i == 49 {
			ref.Namespace = "z"
		}
		o.Cluster.Services[ref] = &view.Service{Ref: ref}
		o.Cluster.Problems = append(o.Cluster.Problems, problem.New(o.Cluster.Services[ref].Object(), desired.ReasonExternalIPRefused, "left out"))
	}
	var got events
	r := report.New(toldTo(&got))
	r.Report(o)
	if at := slices.Index(got, "z/s49 Warning ExternalIPRefused: left out"); len(got) != 20 || at < 0 || at > 1 {
		t.Errorf("told at first:\n%s", strings.Join(got, "\n"))
	}
	r.Refresh()
	r.Refresh()
	r.Refresh()
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 50 {
		t.Errorf("told of %d, want 50:\n%s", n, strings.Join(got, "\n"))
	}
}
