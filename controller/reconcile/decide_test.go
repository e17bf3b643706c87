package reconcile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/ledger"
	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// filled is a mirror of many Services at rest, in one large pool.
func filled(tb testing.TB, services int, coolDown *metav1.Duration) *objects {
	tb.Helper()
	o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
	p := &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1beta1.IPAddressPoolSpec{Addresses: []string{"10.0.0.0/8"}, CoolDown: coolDown},
	}
	named(o, &o.Pools)(client.ObjectKeyFromObject(p), p)
	o.setServiceCIDR(client.ObjectKey{Name: "kubernetes"}, &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}})
	for i := range services {
		s := plain(fmt.Sprintf("s%05d", i), i)
		s.CreationTimestamp = metav1.Unix(int64(i), 0)
		o.see(s)
	}
	apply(tb, o, decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(0, 0)))
	return o
}

// plain is a Service that is new, with the nth ClusterIP.
func plain(name string, n int) *corev1.Service {
	s := balanced(name, "1")
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.ClusterIP = netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}).String()
	return s
}

// indelible is a ledger that has what it is to have as soon as it is wanted.
type indelible struct{}

func (indelible) Records(netip.Addr, ledger.Entry) bool { return true }
func (indelible) Faults() map[netip.Prefix]string       { return nil }

// apply shows the mirror every status that was decided.
func apply(tb testing.TB, o *objects, d *decision) {
	tb.Helper()
	for _, w := range d.writes {
		switch next := w.next.(type) {
		case *corev1.Service:
			o.see(next)
		case *v1beta1.IPAddressPool:
			named(o, &o.Pools)(client.ObjectKeyFromObject(next), next)
		case *v1beta1.IPReservation:
			o.setReservation(client.ObjectKeyFromObject(next), next)
		case *v1beta1.L2Advertisement:
			named(o, &o.L2Advertisements)(client.ObjectKeyFromObject(next), next)
		default:
			tb.Fatalf("a status of %T was written", next)
		}
	}
}

// TestDecideAtRest: what is as it should be is not written again, and a change
// writes what it changes.
func TestDecideAtRest(t *testing.T) {
	t.Parallel()
	o := filled(t, 100, nil)
	if d := decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(1, 0)); len(d.writes) > 0 || len(d.unseen) > 0 {
		t.Fatalf("%d statuses are to be written at rest", len(d.writes))
	}
	s := balanced("one-more", "2")
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	o.see(s)
	d := decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(1, 0))
	for _, want := range []problem.Object{{Kind: "Service", Namespace: "default", Name: "one-more"}, {Kind: "IPAddressPool", Name: "p"}} {
		if _, ok := d.writes[want]; !ok || len(d.writes) != 2 {
			t.Errorf("%s is not among the %d statuses to be written, want 2", want, len(d.writes))
		}
	}
	if len(d.unseen) != 1 {
		t.Errorf("unseen: %v", d.unseen)
	}
}

// TestClusterIPsComeAndGo: where the API server does not tell the range of ClusterIPs, those of Services that get no
// external address are not given while these are there, and nothing wakes a pass for them.
func TestClusterIPsComeAndGo(t *testing.T) {
	t.Parallel()
	o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
	p := &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"10.96.0.0-10.96.0.3"}}}
	named(o, &o.Pools)(client.ObjectKeyFromObject(p), p)
	last := &decision{}
	gets := func(name, want string) {
		t.Helper()
		o.see(plain(name, 99))
		last = decide(o.snapshot(), last, indelible{}, view.Classes{}, time.Unix(0, 0))
		if got := last.outcome.Assigned.Services[view.Ref{Namespace: "default", Name: name}].Addresses; len(got) != 1 || got[0].String() != want {
			t.Errorf("%s got %v, want %s", name, got, want)
		}
		apply(t, o, last)
	}
	internal := plain("internal", 1)
	internal.Spec.Type = corev1.ServiceTypeClusterIP
	gets("first", "10.96.0.0")
	if o.setService(client.ObjectKeyFromObject(internal), internal) {
		t.Error("a Service that gets no address wakes a pass")
	}
	gets("second", "10.96.0.2")
	o.setService(client.ObjectKeyFromObject(internal), nil)
	gets("third", "10.96.0.1")
	gets("fourth", "10.96.0.3")
}

// TestExternalIPsOfNodes: no Service is given an ExternalIP of a node, which its InternalIP does
// not make less the node's, and the pool says so.
func TestExternalIPsOfNodes(t *testing.T) {
	t.Parallel()
	o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
	p := &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1beta1.IPAddressPoolSpec{Addresses: []string{"198.51.100.5-198.51.100.9"}},
	}
	named(o, &o.Pools)(client.ObjectKeyFromObject(p), p)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.5"}, {Type: corev1.NodeExternalIP, Address: "198.51.100.5"},
	}}}
	if _, err := whereabouts(n); err != nil {
		t.Fatal(err)
	}
	o.setNode(client.ObjectKeyFromObject(n), n)
	s := balanced("s", "1")
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	o.see(s)
	d := decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(0, 0))
	if got := d.outcome.Assigned.Services[view.Ref{Namespace: "default", Name: "s"}].Addresses; len(got) != 1 || got[0].String() != "198.51.100.6" {
		t.Errorf("the Service got %v, want 198.51.100.6", got)
	}
	told := slices.ContainsFunc(d.problems, func(p problem.Problem) bool { return p.Reason == verify.ReasonAddressesInUse })
	if !told {
		t.Errorf("nobody was told: %v", d.problems)
	}
}

// TestWhereabouts: what is kept of a node says whether it may announce, and nothing that changes
// all the time.
func TestWhereabouts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Node){
		"out of service": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		},
		"without network": func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue})
		},
		"well": func(*corev1.Node) {},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		}}}
		change(n)
		if _, err := whereabouts(n); err != nil {
			t.Fatal(err)
		}
		if v := (fromkube.Nodes{}).Read(n); v.MayAnnounce() != (name == "well") || !v.Ready {
			t.Errorf("%s: may announce %t, is ready %t", name, v.MayAnnounce(), v.Ready)
		}
		if c := n.Status.Conditions; len(c) > 2 || !c[0].LastHeartbeatTime.IsZero() {
			t.Errorf("%s: conditions %v are kept", name, c)
		}
	}
}

// BenchmarkPass: from the snapshot to the writes among many Services. first is the pass of a
// new leader; one is a Service from its creation until nothing is left to be done, which takes
// two passes. cooled: the same where the pool has a cool-down. told: the same where the API server does not tell the
// range of ClusterIPs, and the pool has them all. chosen: the same where an advertisement chooses Services by labels.
func BenchmarkPass(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("first/services=%d", n), func(b *testing.B) {
			o := filled(b, n, nil)
			for b.Loop() {
				decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(1, 0))
			}
		})
		b.Run(fmt.Sprintf("one/services=%d", n), func(b *testing.B) { oneMore(b, filled(b, n, nil)) })
		b.Run(fmt.Sprintf("cooled/services=%d", n), func(b *testing.B) {
			oneMore(b, filled(b, n, &metav1.Duration{Duration: time.Minute}))
		})
		b.Run(fmt.Sprintf("told/services=%d", n), func(b *testing.B) {
			o := filled(b, n, nil)
			o.setServiceCIDR(client.ObjectKey{Name: "kubernetes"}, nil)
			oneMore(b, o)
		})
		b.Run(fmt.Sprintf("chosen/services=%d", n), func(b *testing.B) {
			o := filled(b, n, nil)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			o.setNode(client.ObjectKeyFromObject(node), node)
			chooses := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "internal", Operator: metav1.LabelSelectorOpDoesNotExist}}}
			a := &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1beta1.L2AdvertisementSpec{ServiceSelectors: []metav1.LabelSelector{chooses}}}
			named(o, &o.L2Advertisements)(client.ObjectKeyFromObject(a), a)
			oneMore(b, o)
		})
	}
}

// oneMore measures one Service after the other.
func oneMore(b *testing.B, o *objects) {
	b.Helper()
	last := decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(1, 0))
	for i := 0; b.Loop(); i++ {
		o.see(plain(fmt.Sprintf("one-more-%d", i), 20_000+i))
		for range 2 {
			last = decide(o.snapshot(), last, indelible{}, view.Classes{}, time.Unix(1, 0))
			apply(b, o, last)
		}
	}
}
