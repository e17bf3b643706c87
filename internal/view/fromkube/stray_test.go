package fromkube_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// TestStray: keys that look like ours and mean nothing are named, each with the one that is meant.
func TestStray(t *testing.T) {
	t.Parallel()
	const label, off = "label ", "off "
	for kind, keys := range map[string]map[string]string{ // by key, a part of what is told; "": nothing
		"Service": {
			"fairlead.dev/pool": "", "fairlead.dev/addresses": "", "fairlead.dev/reservation": "", "fairlead.dev/share-key": "", "fairlead.dev/share-with": "",
			"fairlead.dev/pools": "is fairlead.dev/pool meant", "fairlead.dev/address": "is fairlead.dev/addresses meant",
			"fairlead.dev/reserved": "is fairlead.dev/reservation meant", "fairlead.dev/sharekey": "is fairlead.dev/share-key meant",
			"fairlead.dev/Pool": "is fairlead.dev/pool meant", "Fairlead.Dev/pool": "is fairlead.dev/pool meant",
			"fairlead.dev/loadBalancerIPs": "is fairlead.dev/addresses meant", "fairlead.dev/address-pool": "is fairlead.dev/pool meant",
			"fairlead.dev/allow-shared-ip": "is fairlead.dev/share-key meant", "fairlead.dev/x": "Those that are read are fairlead.dev/addresses, fairlead.dev/pool",
			"example.com/pools": "", "fairlead.devel/pool": "",

			"metallb.io/address-pool": "", "metallb.universe.tf/loadBalancerIPs": "", "metallb.io/allow-shared-ip": "",
			"metallb.io/ip-allocated-from-pool": "", "metallb.universe.tf/ip-allocated-from-pool": "",
			"metallb.universe.tf/addr-pool": "is metallb.universe.tf/address-pool meant, or better fairlead.dev/pool",
			"metallb.io/loadbalancerips":    "is metallb.io/loadBalancerIPs meant, or better fairlead.dev/addresses",
			"metallb.io/reservation":        "is fairlead.dev/reservation meant",

			off + "metallb.io/address-pool": "metallbAnnotations is false: write fairlead.dev/pool", off + "metallb.io/addr-pool": "",
			off + "metallb.io/ip-allocated-from-pool": "", off + "fairlead.dev/pools": "is fairlead.dev/pool meant",

			label + "fairlead.dev/pool": "write it as the annotation fairlead.dev/pool", label + "fairlead.dev/pools": "write it as the annotation fairlead.dev/pool",
			label + "fairlead.dev/tier": "", label + "metallb.io/address-pool": "",
		},
		"Namespace": {
			"fairlead.dev/pool": "on this kind of object: write fairlead.dev/pool on a Service", label + "fairlead.dev/pool": "",
			"metallb.io/address-pool": "",
		},
		"Node":          {"fairlead.dev/share-key": "write fairlead.dev/share-key on a Service", label + "fairlead.dev/pool": ""},
		"IPAddressPool": {"fairlead.dev/addresses": "write fairlead.dev/addresses on a Service", label + "fairlead.dev/node": ""},
	} {
		for key, want := range keys {
			object := problem.Object{Kind: kind, Name: "x"}
			name, unread := strings.CutPrefix(key, off)
			of := &metav1.ObjectMeta{Annotations: map[string]string{name: "v"}}
			if name, is := strings.CutPrefix(key, label); is {
				of = &metav1.ObjectMeta{Labels: map[string]string{name: "v"}}
			}
			got := fromkube.Requests{MetalLB: !unread}.Stray(object, of)
			if want == "" && got == nil {
				continue
			}
			if got == nil || want == "" || got.Object != object || got.Reason != "UnknownAnnotation" || !got.Advisory || !strings.Contains(got.Message, want) {
				t.Errorf("%s with %s: told %v, want %q", kind, key, got, want)
			}
		}
	}
}
