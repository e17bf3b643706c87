package statuswriter_test

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

var (
	vip4 = netip.MustParseAddr("192.0.2.10")
	vip6 = netip.MustParseAddr("2001:db8::10")
)

// keepAddresses runs a writer of L2Addresses until stop or the end of the test.
func (c cluster) keepAddresses(t *testing.T, node string) (a *statuswriter.Addresses, stop func()) {
	t.Helper()
	a = statuswriter.NewAddresses(node, c.speaker, slog.New(slog.DiscardHandler))
	return a, going(t, a.Run)
}

// addresses waits until the objects are as the test says.
func (c cluster) addresses(t *testing.T, what string, ok func(map[string]v1beta1.L2Address) bool) map[string]v1beta1.L2Address {
	t.Helper()
	var list v1beta1.L2AddressList
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		found := map[string]v1beta1.L2Address{}
		for _, object := range list.Items {
			found[object.Spec.Address] = object
		}
		if ok(found) {
			return found
		}
	}
	t.Fatalf("never seen: %s; there are %+v", what, list.Items)
	return nil
}

// of tells whether the node answers for the address, by all that the object says.
func of(o v1beta1.L2Address, node string, uid types.UID) bool {
	return o.Status.Node == node && o.Labels[v1beta1.LabelNode] == node &&
		len(o.OwnerReferences) == 1 && o.OwnerReferences[0].UID == uid && o.OwnerReferences[0].Name == node
}

// testAddressesSayWhoAnswers goes through the life of the objects of two nodes on a real API
// server: they come, are taken over and given back, and go.
func testAddressesSayWhoAnswers(t *testing.T, c cluster) {
	one, two := c.node(t, "node1"), c.node(t, "node2")
	since := time.Now().Add(-time.Hour)
	first := map[netip.Addr]report.Address{
		vip4: {Ownership: api.Ownership{Interfaces: []string{"eth0", "eth1"}, Since: since, Next: "node2"}, Services: []string{"shop/web"}},
		vip6: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: since}},
	}
	a1, stop := c.keepAddresses(t, "node1")
	a1.Set(one, first)
	found := c.addresses(t, "both addresses", func(all map[string]v1beta1.L2Address) bool {
		return of(all["192.0.2.10"], "node1", one) && of(all["2001:db8::10"], "node1", one)
	})
	got := found["192.0.2.10"]
	if got.Name != "192.0.2.10" || found["2001:db8::10"].Name != "2001-0db8-0000-0000-0000-0000-0000-0010" {
		t.Errorf("names %s, %s", got.Name, found["2001:db8::10"].Name)
	}
	s := got.Status
	if !slices.Equal(s.Interfaces, []string{"eth0", "eth1"}) || s.RunnerUp != "node2" || s.Since.Unix() != since.Unix() || !slices.Equal(s.Services, []string{"shop/web"}) {
		t.Errorf("status %+v", s)
	}
	if why := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionAnswering); why == nil || why.Status != "True" || why.Reason != v1beta1.ReasonFirst {
		t.Errorf("conditions %+v", s.Conditions)
	}

	// The second node takes one over, and the first, which is back, deletes nothing of it.
	a2, _ := c.keepAddresses(t, "node2")
	successor := api.Ownership{Interfaces: []string{"eth0"}, Since: since.Add(time.Minute), Dead: []string{"node1"}, Unable: []string{"node3"}}
	a2.Set(two, map[netip.Addr]report.Address{vip4: {Ownership: successor}})
	found = c.addresses(t, "a successor", func(all map[string]v1beta1.L2Address) bool { return of(all["192.0.2.10"], "node2", two) })
	taken := found["192.0.2.10"]
	if taken.UID != got.UID || len(taken.Status.Interfaces) != 1 || taken.Status.RunnerUp != "" || len(taken.Status.Services) > 0 {
		t.Errorf("something of the node before is left: %+v", taken)
	}
	why := meta.FindStatusCondition(taken.Status.Conditions, v1beta1.ConditionAnswering)
	if why == nil || why.Reason != v1beta1.ReasonSuccessor || !strings.Contains(why.Message, "node1 is not alive, node3 is not able to answer") {
		t.Errorf("conditions %+v", taken.Status.Conditions)
	}
	rest := maps.Clone(first)
	delete(rest, vip4)
	contest := &api.Contest{Station: "52:54:00:12:34:56", Interface: "eth0", Since: since}
	rest[vip6] = report.Address{Ownership: rest[vip6].Ownership, Contest: contest}
	a1.Set(one, rest) // its object of the other is one version behind
	c.addresses(t, "a contest, and the successor left alone", func(all map[string]v1beta1.L2Address) bool {
		contested := meta.FindStatusCondition(all["2001:db8::10"].Status.Conditions, v1beta1.ConditionContested)
		return of(all["192.0.2.10"], "node2", two) && contested != nil && contested.Reason == report.ReasonAddressContested &&
			strings.Contains(contested.Message, contest.Station)
	})

	// It comes back, and has to wait for a stranger.
	contest = &api.Contest{Station: "52:54:00:12:34:56", Interface: "eth0", Since: since, Withheld: true}
	a1.Set(one, map[netip.Addr]report.Address{vip4: {Contest: contest}})
	a2.Set(two, nil)
	found = c.addresses(t, "an address that is withheld, and no other", func(all map[string]v1beta1.L2Address) bool {
		return len(all) == 1 && of(all["192.0.2.10"], "node1", one)
	})
	if why := meta.FindStatusCondition(found["192.0.2.10"].Status.Conditions, v1beta1.ConditionAnswering); why == nil || why.Status != "False" || why.Reason != report.ReasonAddressTaken {
		t.Errorf("conditions %+v", found["192.0.2.10"].Status.Conditions)
	}
	stop()
	if err := a1.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.addresses(t, "nothing", func(all map[string]v1beta1.L2Address) bool { return len(all) == 0 })
}
