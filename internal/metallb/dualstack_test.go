package metallb_test

import (
	"cmp"
	"strings"
	"testing"
)

// TestSecondFamilyFromAnotherPool tells of the Services that MetalLB's speakers would take out
// of the network once Fairlead has given them an address of another pool, and of no others.
func TestSecondFamilyFromAnotherPool(t *testing.T) {
	t.Parallel()
	const (
		four = "{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: four}, spec: {addresses: [192.0.2.0/24]}}\n---\n"
		six  = "addresses: ['2001:db8::/64']"

		prefers = "ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv6]"
		holds   = "{ip: 192.0.2.1}"
		step    = `DO      Service/shop/web spec.ipFamilyPolicy="PreferDualStack": its 192.0.2.1 would be withdrawn`
		single  = "or have the Service be SingleStack"
	)
	for name, c := range map[string]struct {
		pool, meta, spec, ingress string // pool: six, if nothing is said
		want, lacks               string
	}{
		"a pool for each family":    {spec: prefers, ingress: holds, want: step},
		"it names the pool":         {spec: prefers, ingress: holds, want: "of IPAddressPool six as well"},
		"it has its first family":   {spec: prefers, ingress: holds, want: single},
		"it has its second family":  {spec: "ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6, IPv4]", ingress: holds, want: step, lacks: single},
		"it has both":               {spec: prefers, ingress: holds + ", {ip: '2001:db8::1'}", lacks: "withdrawn"},
		"it has none":               {spec: prefers, lacks: "withdrawn"},
		"a host name":               {spec: prefers, ingress: "{hostname: example.com}", lacks: "withdrawn"},
		"none of MetalLB's":         {spec: prefers, ingress: "{ip: 203.0.113.1}", lacks: "withdrawn"},
		"one family":                {spec: "ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]", ingress: holds, lacks: "withdrawn"},
		"one family in the cluster": {spec: "ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4]", ingress: holds, lacks: "withdrawn"},
		"it asks for its pool":      {meta: ", annotations: {metallb.io/address-pool: four}", spec: prefers, ingress: holds, lacks: "withdrawn"},
		"a pool that must be asked": {pool: six + ", autoAssign: false", spec: prefers, ingress: holds, lacks: "withdrawn"},
		"a pool of both families":   {pool: "addresses: [192.0.2.0/24, '2001:db8::/64']", spec: prefers, ingress: holds, lacks: "withdrawn"},
		"its own pool has both": {
			pool: six + "}}\n---\n{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: more}, spec: {addresses: [198.51.100.0/24, '2001:db8:1::/64']",
			spec: prefers, ingress: "{ip: 198.51.100.1}", lacks: "withdrawn",
		},
		"for other namespaces": {pool: six + ", serviceAllocation: {namespaces: [office]}", spec: prefers, ingress: holds, lacks: "withdrawn"},
		"for this namespace":   {pool: six + ", serviceAllocation: {namespaces: [shop]}", spec: prefers, ingress: holds, want: step},
		"perhaps for this one": {
			pool: six + ", serviceAllocation: {namespaces: [office], namespaceSelectors: [{matchLabels: {a: b}}]}", spec: prefers, ingress: holds, want: step,
		},
		"for other Services": {pool: six + ", serviceAllocation: {serviceSelectors: [{matchLabels: {a: b}}]}", spec: prefers, ingress: holds, lacks: "withdrawn"},
		"for such Services": {
			pool: six + ", serviceAllocation: {serviceSelectors: [{matchLabels: {a: b}}]}", meta: ", labels: {a: b}", spec: prefers, ingress: holds, want: step,
		},
	} {
		pool := "{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: six}, spec: {" + cmp.Or(c.pool, six) + "}}\n---\n"
		got := told(translate(t, four+pool+"{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web"+c.meta+"}, spec: {type: LoadBalancer, "+c.spec+
			"}, status: {loadBalancer: {ingress: ["+c.ingress+"]}}}"))
		if !strings.Contains(got, c.want) || c.lacks != "" && strings.Contains(got, c.lacks) {
			t.Errorf("%s: told\n%swant %s, and not %s", name, got, c.want, c.lacks)
		}
	}
}
