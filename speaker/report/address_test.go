package report_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
)

// registered is what was told last, and how often.
type registered struct {
	unread
	times     int
	uid       types.UID
	addresses map[netip.Addr]report.Address
}

func (r *registered) Addresses(uid types.UID, addresses map[netip.Addr]report.Address) {
	*r = registered{times: r.times + 1, uid: uid, addresses: addresses}
}

func TestTheRegisterLearnsWhoAnswersForWhat(t *testing.T) {
	var got events
	var register registered
	c := toldTo(&got)
	c.Objects = &register
	r := report.New(c)
	o := anOutcome()
	o.Cluster.Nodes = map[string]*view.Node{"node1": {Name: "node1", UID: "uid"}}
	r.Report(o)
	r.Owns(nil) // pulse is away
	r.Refresh()
	if register.times > 0 {
		t.Fatalf("told of %v before anything was known", register.addresses)
	}
	how := api.Ownership{Interfaces: []string{"eth0"}, Since: time.Now(), Dead: []string{"node2"}, Next: "node3"}
	r.Owns(map[netip.Addr]api.Ownership{vip: how})
	withheld := api.Contest{Station: "02:00:00:00:00:07", Interface: "eth0", Withheld: true}
	r.Contests(map[netip.Addr]api.Contest{vip6: withheld}, nil)
	want := map[netip.Addr]report.Address{
		vip:  {Ownership: how, Services: []string{"shop/web"}},
		vip6: {Contest: &withheld, Services: []string{"shop/web"}},
	}
	if register.uid != "uid" || !reflect.DeepEqual(register.addresses, want) {
		t.Errorf("told %+v, want %+v", register.addresses, want)
	}

	// The Service goes, and another has the address; nothing else changes.
	before := register.times
	o = anOutcome()
	o.Cluster.Nodes = map[string]*view.Node{"node1": {Name: "node1", UID: "uid"}}
	o.Cluster.Services = map[view.Ref]*view.Service{}
	for _, name := range []string{"b", "a"} {
		ref := view.Ref{Namespace: "shop", Name: name}
		o.Cluster.Services[ref] = &view.Service{Ref: ref, VIPs: []netip.Addr{vip}}
	}
	r.Report(o)
	r.Refresh()
	if got := register.addresses[vip].Services; !reflect.DeepEqual(got, []string{"shop/a", "shop/b"}) || register.times == before {
		t.Errorf("Services %v", got)
	}
	before = register.times
	r.Owns(nil) // pulse restarts
	if register.times != before {
		t.Errorf("told of %v while pulse was away", register.addresses)
	}
}
