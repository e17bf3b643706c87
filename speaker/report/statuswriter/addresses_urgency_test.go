package statuswriter

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
)

// TestWhatIsNewsOfAnAddress: when a node dies, the runner-up of many addresses is another,
// and those that have moved must not wait for these to be written.
func TestWhatIsNewsOfAnAddress(t *testing.T) {
	t.Parallel()
	address, since := netip.MustParseAddr("192.0.2.10"), time.Now()
	changed := func(change func(*report.Address)) report.Address {
		a := report.Address{Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: since, Next: "node2"}, Services: []string{"shop/web"}}
		change(&a)
		return a
	}
	before := renderAddress("node1", "uid", address, changed(func(*report.Address) {}))
	for name, c := range map[string]struct {
		change func(*report.Address)
		want   urgency
	}{
		"nothing":              {func(*report.Address) {}, unchanged},
		"a part of a second":   {func(a *report.Address) { a.Since = since.Truncate(time.Second) }, unchanged},
		"the runner-up":        {func(a *report.Address) { a.Next = "node3" }, throttled},
		"who comes before":     {func(a *report.Address) { a.Dead = []string{"node0"} }, throttled},
		"who is damped":        {func(a *report.Address) { a.Damped = []string{"node0"} }, throttled},
		"who takes it not":     {func(a *report.Address) { a.Preferred = []string{"node0"} }, throttled},
		"the Services":         {func(a *report.Address) { a.Services = nil }, throttled},
		"since when":           {func(a *report.Address) { a.Since = since.Add(time.Minute) }, immediate},
		"the interfaces":       {func(a *report.Address) { a.Interfaces = []string{"eth1"} }, immediate},
		"a contest":            {func(a *report.Address) { a.Contest = &api.Contest{} }, immediate},
		"a stranger was first": {func(a *report.Address) { a.Contest = &api.Contest{Withheld: true} }, immediate},
	} {
		after := renderAddress("node1", "uid", address, changed(c.change))
		if got := (addressKind{}).compare(before, after); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	after := renderAddress("node2", "uid", address, changed(func(*report.Address) {}))
	if got := (addressKind{}).compare(before, after); got != immediate {
		t.Errorf("another node: %d, want %d", got, immediate)
	}
}

// TestWhyANodeAnswers tells of preemption before it tells of the dead: those come back and change nothing.
func TestWhyANodeAnswers(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]api.Ownership{
		"First":        {},
		"Successor":    {Dead: []string{"node0"}, Damped: []string{"node3"}},
		"NotPreempted": {Dead: []string{"node0"}, Preferred: []string{"node4"}},
	} {
		answering := renderAddress("node1", "uid", netip.MustParseAddr("192.0.2.10"), report.Address{Ownership: o}).Status.Conditions[0]
		if answering.Reason != want || want == "Successor" && !strings.HasSuffix(answering.Message, ": node0 is not alive, node3 fell silent again and again") ||
			len(o.Preferred) > 0 && !strings.Contains(answering.Message, "preempt: Never, though node4 comes before it") {
			t.Errorf("%+v: %s, %q, want %s", o, answering.Reason, answering.Message, want)
		}
	}
}
