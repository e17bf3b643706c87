package reconcile

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// decision is the outcome of one pass.
type decision struct {
	assigned map[view.Ref]allocation.Assignment
	usage    map[string]allocation.Usage
	problems []problem.Problem // of all objects, sorted
	writes   map[problem.Object]write
	unseen   map[view.Ref]unseen

	extent  map[string][]netipx.IPRange // by pool
	cooling map[netip.Addr]rest
	held    map[netip.Addr]view.Ref // addresses of pools with a cool-down
}

// unseen is an assignment that the informer does not show yet, and the version
// of the Service that it was decided for. Writes are refused by the API server
// when the Service is not at that version any more. So as long as the informer
// shows this version the assignment may be in place or under way, and once it
// shows another one, that one tells the truth.
type unseen struct {
	version    string
	assignment allocation.Assignment
}

// assumed is what is still not seen of the last decision.
func assumed(last map[view.Ref]unseen, s *snapshot) map[view.Ref]allocation.Assignment {
	still := make(map[view.Ref]allocation.Assignment, len(last))
	for ref, u := range last {
		if service := s.services[ref]; service != nil && service.ResourceVersion == u.version {
			still[ref] = u.assignment
		}
	}
	return still
}

// decide makes up its mind about everything in the snapshot: it has no effects. last is
// what it decided last, the zero decision for nothing.
func decide(s *snapshot, last *decision, classes view.Classes, now time.Time) *decision {
	d := &decision{writes: map[problem.Object]write{}, unseen: map[view.Ref]unseen{}}
	d.cooling = cooling(s, last, now)
	s.cluster.Cooling = make(map[netip.Addr]view.Ref, len(d.cooling))
	for a, r := range d.cooling {
		s.cluster.Cooling[a] = r.left
	}
	d.assigned, d.problems = allocation.Plan(s.cluster, assumed(last.unseen, s), classes)
	if d.cooling != nil {
		d.held = holders(s.cluster, d.assigned, s.cluster.PoolsByAge())
		maps.DeleteFunc(d.cooling, func(a netip.Addr, _ rest) bool { _, again := d.held[a]; return again })
	}
	d.usage = allocation.Count(s.cluster, d.assigned)
	d.extent = allocation.Extent(s.cluster, d.assigned)
	d.problems = slices.Concat(d.problems, s.cluster.Problems, verify.Check(s.cluster))
	problem.Sort(d.problems)

	w := &statusPlanner{decision: d, problems: byObject(d.problems), unmet: unmet(d.problems), now: metav1.NewTime(now)}
	for ref, service := range s.services {
		w.service(ref, service, s.cluster.Services[ref])
	}
	pools := s.cluster.PoolsByAge()
	for _, p := range s.pools {
		w.pool(p, pools)
	}
	for _, a := range s.l2Advertisements {
		next := a.DeepCopy()
		w.ready("L2Advertisement", a, next, a.Status.Conditions, &next.Status.Conditions)
	}
	for _, a := range s.bgpAdvertisements {
		next := a.DeepCopy()
		w.ready("BGPAdvertisement", a, next, a.Status.Conditions, &next.Status.Conditions)
	}
	for _, p := range s.bgpPeers {
		next := p.DeepCopy()
		w.ready("BGPPeer", p, next, p.Status.Conditions, &next.Status.Conditions)
	}
	return d
}

// unmet are the objects with a problem that is more than advice.
func unmet(problems []problem.Problem) map[problem.Object]bool {
	lacking := map[problem.Object]bool{}
	for _, p := range problems {
		if !allocation.Advisory(p.Reason) && !verify.Advisory(p.Reason) && !fromkube.Advisory(p.Reason) {
			lacking[p.Object] = true
		}
	}
	return lacking
}

// due is when time alone changes the decision: an address has cooled down. The zero time
// for never.
func (d *decision) due() time.Time {
	var first time.Time
	for _, r := range d.cooling {
		if first.IsZero() || r.until.Before(first) {
			first = r.until
		}
	}
	return first
}

// statusPlanner collects the statuses that say something else than was decided.
type statusPlanner struct {
	*decision
	problems map[problem.Object][]problem.Problem
	unmet    map[problem.Object]bool // without all that they insist on, or out of use
	now      metav1.Time
}

func (w *statusPlanner) service(ref view.Ref, s *corev1.Service, v *view.Service) {
	object := problem.Object{Kind: "Service", Namespace: ref.Namespace, Name: ref.Name}
	var next *corev1.ServiceStatus
	assignment, ours := w.assigned[ref]
	switch {
	case ours:
		next = status.Service(s, status.Allocation{
			Addresses: assignment.Addresses,
			Met:       !w.unmet[object],
			Problems:  w.problems[object],
		}, w.now)
		if !slices.Equal(assignment.Addresses, v.Ingress) {
			w.unseen[ref] = unseen{s.ResourceVersion, assignment}
		}
	case s.Spec.Type != corev1.ServiceTypeLoadBalancer:
		next = status.Released(s)
	}
	if next == nil {
		return
	}
	changed := s.DeepCopy()
	changed.Status = *next
	w.writes[object] = write{base: s, next: changed, events: status.ServiceEvents(&s.Status, next)}
}

func (w *statusPlanner) pool(p *v1beta1.IPAddressPool, all []*view.Pool) {
	object := problem.Object{Kind: "IPAddressPool", Name: p.Name}
	next := p.DeepCopy()
	u, after := w.usage[p.Name], &next.Status
	after.AssignedIPv4, after.AvailableIPv4, after.TotalIPv4 = u.AssignedIPv4, u.AvailableIPv4, u.TotalIPv4
	after.AssignedIPv6, after.AvailableIPv6, after.TotalIPv6 = u.AssignedIPv6, u.AvailableIPv6, u.TotalIPv6
	after.CoolingDown = coolingDown(w.cooling, all, p.Name)
	after.Addresses = ranges(w.extent[p.Name])
	if changed := status.Ready(after.Conditions, p.Generation, w.problems[object], !w.unmet[object], w.now); changed != nil {
		after.Conditions = changed
	}
	if changed := status.HasCapacity(after.Conditions, p.Generation, u.Lack, w.now); changed != nil {
		after.Conditions = changed
	}
	if equality.Semantic.DeepEqual(&p.Status, after) {
		return
	}
	w.writes[object] = write{base: p, next: next, events: status.PoolEvents(p.Status.Conditions, after.Conditions)}
}

// ranges writes ranges of addresses for a status, as CIDRs where they are one.
func ranges(all []netipx.IPRange) []string {
	const most = 4096 // as the schema has it
	texts := make([]string, 0, len(all))
	for _, r := range all[:min(len(all), most)] {
		if prefix, ok := r.Prefix(); ok {
			texts = append(texts, prefix.String())
		} else {
			texts = append(texts, r.String())
		}
	}
	return texts
}

// ready plans the condition Ready of one object of ours.
func (w *statusPlanner) ready(kind string, base, next client.Object, before []metav1.Condition, into *[]metav1.Condition) {
	object := problem.Object{Kind: kind, Name: base.GetName()}
	after := status.Ready(before, base.GetGeneration(), w.problems[object], !w.unmet[object], w.now)
	if after == nil {
		return
	}
	*into = after
	w.writes[object] = write{base: base, next: next, events: status.ReadyEvents(before, after)}
}
