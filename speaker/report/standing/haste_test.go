package standing

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/report"
)

// TestWhatIsNewsOfAnAddress: when a node dies, the runner-up of many addresses is another,
// and those that have moved must not wait for these to be written.
func TestWhatIsNewsOfAnAddress(t *testing.T) {
	t.Parallel()
	address, since := netip.MustParseAddr("192.0.2.10"), time.Now()
	changed := func(change func(*report.Address)) report.Address {
		a := report.Address{Ownership: report.Ownership{Interfaces: []string{"eth0"}, Since: since, Next: "node2"}, Services: []string{"shop/web"}}
		change(&a)
		return a
	}
	before := renderAddress("node1", "uid", address, changed(func(*report.Address) {}))
	for name, c := range map[string]struct {
		change func(*report.Address)
		want   haste
	}{
		"nothing":              {func(*report.Address) {}, never},
		"a part of a second":   {func(a *report.Address) { a.Since = since.Truncate(time.Second) }, never},
		"the runner-up":        {func(a *report.Address) { a.Next = "node3" }, paused},
		"who comes before":     {func(a *report.Address) { a.Dead = []string{"node0"} }, paused},
		"the Services":         {func(a *report.Address) { a.Services = nil }, paused},
		"since when":           {func(a *report.Address) { a.Since = since.Add(time.Minute) }, now},
		"the interfaces":       {func(a *report.Address) { a.Interfaces = []string{"eth1"} }, now},
		"a contest":            {func(a *report.Address) { a.Contest = &report.Contest{} }, now},
		"a stranger was first": {func(a *report.Address) { a.Contest = &report.Contest{Withheld: true} }, now},
	} {
		after := renderAddress("node1", "uid", address, changed(c.change))
		if got := (addressKind{}).compare(before, after); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	after := renderAddress("node2", "uid", address, changed(func(*report.Address) {}))
	if got := (addressKind{}).compare(before, after); got != now {
		t.Errorf("another node: %d, want %d", got, now)
	}
}
