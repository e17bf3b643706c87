package reconcile

import (
	"iter"
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
	"fairlead.dev/fairlead/controller/ledger"
	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
)

// decision is the outcome of one pass.
type decision struct {
	engine   *allocation.Engine // to be asked again
	checker  *verify.Checker    // the same
	outcome  allocation.Outcome // holds until then
	problems []problem.Problem  // of all objects, sorted
	writes   map[problem.Object]write
	unseen   map[problem.Object]unseen

	roll    *roll                       // to be brought up to date
	book    ledger.Book                 // the holders of addresses of pools with a cool-down
	cooling map[netip.Addr]ledger.Entry // of that, what rests

	orphaned  time.Time                    // when the next BGPSession is to be deleted; zero for never
	outage    time.Time                    // when the next BGPSession has been down for so long that Services are told; zero for never
	contested map[problem.Object]time.Time // until when the status of a Service counts as contested
	straying  int                          // Services with keys that mean nothing
}

// unseen is an assignment that the informer does not show yet, and the version
// of the Service or IPReservation that it was decided for. Writes are refused by the API
// server when the object is not at that version any more. So as long as the informer
// shows this version the assignment may be in place or under way, and once it
// shows another one, that one tells the truth.
type unseen struct {
	version    string
	assignment allocation.Assignment
}

// assumed is what is still not seen of the last decision.
func assumed(last map[problem.Object]unseen, s *snapshot) allocation.Assignments {
	still := allocation.Assignments{Services: map[view.Ref]allocation.Assignment{}, Reservations: map[view.Ref]allocation.Assignment{}}
	for object, u := range last {
		if s.current(object) != u.version {
			continue
		}
		ref := view.Ref{Namespace: object.Namespace, Name: object.Name}
		if object.Kind == "Service" {
			still.Services[ref] = u.assignment
		} else {
			still.Reservations[ref] = u.assignment
		}
	}
	return still
}

// decide returns what to write for a snapshot, which it leaves as it is. It brings the engine
// and the roll of the last decision up to date; the zero decision comes first. A status that
// shows what must be in the ledger first is left out until stored has it.
func decide(s *snapshot, last *decision, stored record, classes view.Classes, now time.Time) *decision {
	d := &decision{engine: last.engine, checker: last.checker, writes: map[problem.Object]write{}, unseen: map[problem.Object]unseen{}, contested: s.contested}
	if d.engine == nil {
		d.engine, d.checker = allocation.NewEngine(classes), &verify.Checker{}
	}
	s = s.withAssumed(last.unseen)
	pools, assumed := withCoolDown(s.cluster.PoolsByAge()), assumed(last.unseen, s)
	var services iter.Seq[view.Ref]
	d.roll, services = last.roll.follow(s.cluster, pools, last.book)
	d.roll.look(s.cluster, assumed, services)
	d.book = d.roll.next(last.book, now)
	cluster := *s.cluster
	cluster.Cooling = map[netip.Addr]view.Ref{}
	for a, e := range d.book.Resting() {
		cluster.Cooling[a] = e.Owner
	}
	d.outcome = d.engine.Plan(&cluster, assumed)
	if services = maps.Keys(d.outcome.Looked); d.outcome.Looked == nil {
		services = maps.Keys(s.cluster.Services)
	}
	d.roll.look(s.cluster, d.outcome.Assigned, services)
	d.book = d.roll.next(d.book, now)
	d.cooling = maps.Collect(d.book.Resting())
	d.problems = slices.Concat(d.outcome.Problems, s.cluster.Problems, d.checker.Check(s.cluster, d.outcome.Occupied, now), pools.unwritten(stored.Faults()), d.contests(), slices.Collect(maps.Values(s.strays)))
	problem.Sort(d.problems)
	d.straying = d.countStrays(s)

	w := &statusPlanner{decision: d, stored: stored, classes: classes, problems: byObject(d.problems), unmet: unmet(d.problems), now: metav1.NewTime(now)}
	w.advertising = advertising{s.cluster.PoolsByAge(), verify.Uncovered(s.cluster)}
	w.serviceStatuses(s, last)
	for ref, r := range s.reservations {
		w.reservation(ref, r, s.cluster.Reservations[ref])
	}
	for ref, r := range s.excess {
		w.tooMany(ref, r)
	}
	coolingDown := coolingDown(d.cooling, pools)
	for name, p := range s.pools {
		w.pool(p, coolingDown[name])
	}
	ready(w, "L2Advertisement", s.l2Advertisements, func(a *v1beta1.L2Advertisement) *[]metav1.Condition { return &a.Status.Conditions })
	ready(w, "BGPAdvertisement", s.bgpAdvertisements, func(a *v1beta1.BGPAdvertisement) *[]metav1.Condition { return &a.Status.Conditions })
	ready(w, "BFDProfile", s.bfdProfiles, func(p *v1beta1.BFDProfile) *[]metav1.Condition { return &p.Status.Conditions })
	ready(w, "Community", s.communities, func(c *v1beta1.Community) *[]metav1.Condition { return &c.Status.Conditions })
	counts := verify.CountSessions(s.cluster)
	for name, p := range s.bgpPeers {
		w.peer(p, counts[name])
	}
	d.orphaned, d.outage = w.orphans(s), verify.NextOutage(s.cluster, now)
	return d
}

// unmet are the objects with a problem that is more than advice.
func unmet(problems []problem.Problem) map[problem.Object]bool {
	lacking := map[problem.Object]bool{}
	for _, p := range problems {
		if !p.Advisory {
			lacking[p.Object] = true
		}
	}
	return lacking
}

// due is when time alone changes the decision: an address has cooled down, a BGPSession
// has been an orphan or down for long enough, or a contest is over. The zero time for never.
func (d *decision) due() time.Time {
	var first time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	sooner(d.orphaned)
	sooner(d.outage)
	for _, r := range d.cooling {
		sooner(r.Until)
	}
	for _, until := range d.contested {
		sooner(until)
	}
	return first
}

// statusPlanner collects the statuses that say something else than was decided.
type statusPlanner struct {
	*decision
	stored   record
	classes  view.Classes
	problems map[problem.Object][]problem.Problem
	unmet    map[problem.Object]bool // without all that they insist on, or out of use
	now      metav1.Time

	advertising advertising
}

// serviceStatuses plans the statuses of Services. What was to be written to those that were
// not looked at, and of which there is nothing new to say, still is.
func (w *statusPlanner) serviceStatuses(s *snapshot, last *decision) {
	look := w.outcome.Looked
	if look == nil {
		for ref, service := range s.services {
			w.service(ref, service, s.cluster.Services[ref])
		}
		return
	}
	for _, problems := range [][]problem.Problem{w.decision.problems, last.problems} {
		for _, p := range problems {
			if p.Object.Kind == "Service" {
				look[view.Ref{Namespace: p.Object.Namespace, Name: p.Object.Name}] = struct{}{}
			}
		}
	}
	for object, pending := range last.writes {
		if _, looked := look[view.Ref{Namespace: object.Namespace, Name: object.Name}]; object.Kind == "Service" && !looked {
			w.writes[object] = pending
		}
	}
	for ref := range look {
		if service := s.services[ref]; service != nil {
			w.service(ref, service, s.cluster.Services[ref])
		}
	}
}

func (w *statusPlanner) service(ref view.Ref, s *corev1.Service, v *view.Service) {
	object := problem.Object{Kind: "Service", Namespace: ref.Namespace, Name: ref.Name}
	var next *corev1.ServiceStatus
	assignment, ours := w.outcome.Assigned.Services[ref]
	switch {
	case ours:
		next = status.Service(s, status.Allocation{
			Addresses: assignment.Addresses,
			Guest:     assignment.Guest,
			Met:       !w.unmet[object],
			Problems:  withStray(w.problems[object], v.Request.Stray),
		}, w.now)
		if !slices.Equal(assignment.Addresses, v.Ingress) {
			w.unseen[object] = unseen{s.ResourceVersion, assignment}
		}
	case s.Spec.Type != corev1.ServiceTypeLoadBalancer:
		next = status.Released(s)
	case v != nil && !v.Deleting && !w.classes.Serves(v.Class):
		next = w.unserved(s, v)
	}
	if next == nil || ours && !w.recorded(assignment.Addresses, v.Ingress) {
		return
	}
	changed := s.DeepCopy()
	changed.Status = *next
	events := status.ServiceEvents(&s.Status, next)
	if ours {
		events = append(events, w.advertising.unannounced(v.Ingress, assignment.Addresses)...)
	}
	w.writes[object] = write{base: s, next: changed, events: events}
}

func (w *statusPlanner) pool(p *v1beta1.IPAddressPool, coolingDown []v1beta1.CoolingAddress) {
	object := problem.Object{Kind: "IPAddressPool", Name: p.Name}
	next := p.DeepCopy()
	u, after := w.outcome.Usage[p.Name], &next.Status
	after.AssignedIPv4, after.AvailableIPv4, after.TotalIPv4 = u.IPv4.Assigned, u.IPv4.Available, u.IPv4.Total
	after.AssignedIPv6, after.AvailableIPv6, after.TotalIPv6 = u.IPv6.Assigned, u.IPv6.Available, u.IPv6.Total
	after.ReservedIPv4, after.ReservedIPv6 = u.IPv4.Reserved, u.IPv6.Reserved
	after.CoolingDown = coolingDown
	after.Addresses = ranges(w.outcome.Extent[p.Name])
	after.Conditions = status.Ready(after.Conditions, p.Generation, w.problems[object], !w.unmet[object], w.now)
	after.Conditions = status.HasCapacity(after.Conditions, p.Generation, u.Lack, w.now)
	held := u.IPv4.Assigned+u.IPv6.Assigned > 0
	after.Conditions = status.Advertised(after.Conditions, p.Generation, w.advertising.lack(p.Name), held, w.now)
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

func ready[O interface {
	client.Object
	DeepCopy() O
}](w *statusPlanner, kind string, all map[string]O, conditions func(O) *[]metav1.Condition) {
	for name, base := range all {
		object, before := problem.Object{Kind: kind, Name: name}, *conditions(base)
		after := status.Ready(before, base.GetGeneration(), w.problems[object], !w.unmet[object], w.now)
		if slices.Equal(before, after) {
			continue
		}
		next := base.DeepCopy()
		*conditions(next) = after
		w.writes[object] = write{base: base, next: next, events: status.ReadyEvents(before, after)}
	}
}
