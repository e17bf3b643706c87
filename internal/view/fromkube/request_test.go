package fromkube_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// requested reads the request of a Service with these annotations and, if not
// empty, this spec.loadBalancerIP.
func requested(how fromkube.Requests, annotations map[string]string, loadBalancerIP string) view.Request {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: annotations},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", LoadBalancerIP: loadBalancerIP},
	}
	return how.Read(s, fromkube.Service(s))
}

func TestRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations    map[string]string
		loadBalancerIP string
		ours           bool // MetalLB's annotations are not followed
		want           view.Request
		invalid        string // part of the message
	}{
		"nothing": {},
		"a share key, ours or MetalLB's": {
			annotations: map[string]string{"fairlead.dev/share-key": " one two ", "metallb.io/allow-shared-ip": "one two"},
			want:        view.Request{ShareKey: "one two"},
		},
		"two share keys": {
			annotations: map[string]string{"metallb.io/allow-shared-ip": "k", "metallb.universe.tf/allow-shared-ip": "l", "metallb.io/address-pool": ","},
			want:        view.Request{ShareKey: "k"},
			invalid:     "has an empty name",
		},
		"other namespaces to share with": {
			annotations: map[string]string{"fairlead.dev/share-key": "k", "fairlead.dev/share-with": "dns, mail", "metallb.io/": "x"},
			want:        view.Request{ShareKey: "k", ShareWith: []string{"dns", "mail"}},
		},
		"no names of namespaces": {
			annotations: map[string]string{"fairlead.dev/share-key": "k", "fairlead.dev/share-with": "dns,,"},
			want:        view.Request{ShareKey: "k"},
			invalid:     `annotation fairlead.dev/share-with: "dns,," has an empty name`,
		},
		"too long for a name": {
			annotations: map[string]string{"fairlead.dev/pool": strings.Repeat("p", 100_000)},
			invalid:     `annotation fairlead.dev/pool: "` + strings.Repeat("p", 61) + `…" is too long for a name`,
		},
		"ours": {
			annotations: map[string]string{"fairlead.dev/pool": "lan-v4, lan-v6", "fairlead.dev/addresses": "192.0.2.10, 2001:db8::10,192.0.2.10"},
			want:        view.Request{Addresses: ips("192.0.2.10", "2001:db8::10"), Pools: []string{"lan-v4", "lan-v6"}},
		},
		"MetalLB's": {
			annotations: map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.10,2001:db8::10", "metallb.io/address-pool": "public"},
			want:        view.Request{Addresses: ips("192.0.2.10", "2001:db8::10"), Pools: []string{"public"}},
		},
		"MetalLB's older ones": {
			annotations: map[string]string{"metallb.universe.tf/loadBalancerIPs": "192.0.2.10", "metallb.universe.tf/address-pool": "public"},
			want:        view.Request{Addresses: ips("192.0.2.10"), Pools: []string{"public"}},
		},
		"MetalLB's are nobody's business": {
			annotations: map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.10", "metallb.io/address-pool": "public", "fairlead.dev/pool": "other"},
			ours:        true,
			want:        view.Request{Pools: []string{"other"}},
		},
		"the field": {
			loadBalancerIP: "192.0.2.1",
			want:           view.Request{Addresses: ips("192.0.2.1")},
		},
		"empty annotations say nothing": {
			annotations:    map[string]string{"fairlead.dev/addresses": "", "metallb.io/loadBalancerIPs": " ", "fairlead.dev/pool": ""},
			loadBalancerIP: "192.0.2.1",
			want:           view.Request{Addresses: ips("192.0.2.1")},
		},
		"the same in many places": {
			annotations: map[string]string{
				"fairlead.dev/addresses": "192.0.2.1,2001:db8::1", "metallb.io/loadBalancerIPs": "2001:DB8::1, 192.0.2.1",
				"metallb.universe.tf/loadBalancerIPs": "192.0.2.1,2001:db8:0::1",
			},
			want: view.Request{Addresses: ips("192.0.2.1", "2001:db8::1")},
		},
		"ours come before MetalLB's, and these before the field": {
			annotations: map[string]string{
				"fairlead.dev/pool": "ours", "metallb.io/address-pool": "theirs",
				"metallb.io/loadBalancerIPs": "192.0.2.1", "metallb.universe.tf/loadBalancerIPs": "nonsense",
			},
			loadBalancerIP: "192.0.2.2",
			want: view.Request{
				Addresses: ips("192.0.2.1"), Pools: []string{"ours"},
				Conflicts: []string{
					`annotation fairlead.dev/pool says "ours" and annotation metallb.io/address-pool says "theirs": the former is followed; remove one, or make them the same`,
					`annotation metallb.io/loadBalancerIPs says "192.0.2.1" and annotation metallb.universe.tf/loadBalancerIPs says "nonsense": the former is followed; remove one, or make them the same`,
					`annotation metallb.io/loadBalancerIPs says "192.0.2.1" and spec.loadBalancerIP says "192.0.2.2": the former is followed; remove one, or make them the same`,
				},
			},
		},
		"what is followed cannot be read": {
			annotations:    map[string]string{"fairlead.dev/addresses": "192.0.2.1,nonsense"},
			loadBalancerIP: "192.0.2.2",
			invalid:        `annotation fairlead.dev/addresses: "nonsense" is not an IP address`,
		},
		"a zone":        {annotations: map[string]string{"fairlead.dev/addresses": "fe80::1%eth0"}, invalid: `"fe80::1%eth0" is not an IP address`},
		"IPv4-mapped":   {annotations: map[string]string{"fairlead.dev/addresses": "::ffff:192.0.2.1"}, invalid: "is not an IP address"},
		"an empty part": {annotations: map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.1,"}, invalid: `annotation metallb.io/loadBalancerIPs: "" is not`},
		"an empty pool": {annotations: map[string]string{"fairlead.dev/pool": "a,,b"}, invalid: `annotation fairlead.dev/pool: "a,,b" has an empty name`},
		"reservations": {
			annotations: map[string]string{"fairlead.dev/reservation": "web-v4, web-v6,web-v4", "fairlead.dev/share-key": "k"},
			want:        view.Request{Reservations: []string{"web-v4", "web-v6"}, ShareKey: "k"},
		},
		"an empty reservation": {
			annotations: map[string]string{"fairlead.dev/reservation": "web,", "fairlead.dev/pool": "p", "fairlead.dev/share-key": "k"},
			want:        view.Request{ShareKey: "k"},
			invalid:     `annotation fairlead.dev/reservation: "web," has an empty name`,
		},
		"too many reservations": {
			annotations: map[string]string{"fairlead.dev/reservation": "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"},
			invalid:     "more than 16 names",
		},
		"the field alone": {loadBalancerIP: "lb.example.com", invalid: `spec.loadBalancerIP: "lb.example.com" is not an IP address`},
		"too many": {
			annotations: map[string]string{"fairlead.dev/addresses": strings.Join(strings.Fields(
				"192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6 192.0.2.7 192.0.2.8 192.0.2.9 "+
					"192.0.2.10 192.0.2.11 192.0.2.12 192.0.2.13 192.0.2.14 192.0.2.15 192.0.2.16 192.0.2.17"), ",")},
			invalid: "more than 16 addresses",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := requested(fromkube.Requests{MetalLB: !test.ours}, test.annotations, test.loadBalancerIP)
			if test.invalid != "" {
				if got.Invalid == nil || got.Invalid.Reason != fromkube.ReasonInvalidRequest || !strings.Contains(got.Invalid.Message, test.invalid) {
					t.Errorf("want it refused for %q, got %+v", test.invalid, got.Invalid)
				}
				got.Invalid = nil
			}
			if d := cmp.Diff(test.want, got, compare); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestNoMessageIsLong: a user may write a quarter of a MiB, of which a message quotes the beginning.
func TestNoMessageIsLong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x00\"ü,", 25_000)
	for _, annotation := range []string{"addresses", "pool", "reservation", "share-key", "share-with"} {
		for _, theirs := range []string{"loadBalancerIPs", "address-pool", "allow-shared-ip"} {
			got := requested(fromkube.Requests{MetalLB: true}, map[string]string{"fairlead.dev/" + annotation: long, "metallb.io/" + theirs: long + "1", "metallb.universe.tf/" + theirs: long + "2"}, long)
			texts := got.Conflicts
			if got.Invalid != nil {
				texts = append(texts, got.Invalid.Message)
			}
			if len(texts) == 0 {
				t.Errorf("%s and %s: nothing is told", annotation, theirs)
			}
			for _, text := range texts {
				if len(text) > 1000 {
					t.Errorf("%s and %s: told in %d bytes", annotation, theirs, len(text))
				}
			}
		}
	}
}

// FuzzRequests: whatever users write, what is read is addresses that a Service can
// have and names, none twice, or a problem.
func FuzzRequests(f *testing.F) {
	f.Add("192.0.2.1,2001:db8::1", "192.0.2.1", "a,b", "", "r", "192.0.2.2")
	f.Add("::ffff:192.0.2.1", "fe80::1%eth0", ",", " ", "r,,s", "nonsense")
	f.Fuzz(func(t *testing.T, addresses, theirs, pool, theirPool, reservation, field string) {
		got := requested(fromkube.Requests{MetalLB: true}, map[string]string{
			v1beta1.AnnotationAddresses: addresses, "metallb.io/" + v1beta1.MetalLBAddresses: theirs,
			v1beta1.AnnotationReservation: reservation, v1beta1.AnnotationPool: pool, "metallb.universe.tf/" + v1beta1.MetalLBPool: theirPool,
		}, field)
		if got.Invalid != nil && len(got.Addresses)+len(got.Pools)+len(got.Reservations) > 0 {
			t.Errorf("unreadable, and yet %v, %q and %q are asked for", got.Addresses, got.Pools, got.Reservations)
		}
		seen := map[string]bool{}
		for _, a := range got.Addresses {
			if !a.IsValid() || a.Zone() != "" || a.Is4In6() || seen[a.String()] {
				t.Errorf("%s was read from %q, %q and %q", a, addresses, theirs, field)
			}
			seen[a.String()] = true
		}
		for _, names := range [][]string{got.Pools, got.Reservations} {
			for i, name := range names {
				if strings.TrimSpace(name) == "" || slices.Contains(names[:i], name) {
					t.Errorf("%q was read from %q, %q and %q", name, pool, theirPool, reservation)
				}
			}
		}
	})
}
