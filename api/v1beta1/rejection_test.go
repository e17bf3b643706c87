package v1beta1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/admission"
)

// spec is one case: the spec of an object, in YAML flow style, and what the API
// server has to say about it; nothing when it is admitted.
type spec struct {
	name, spec string
	want       string
}

func TestIPAddressPoolSpec(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("192.0.2.%d/32", i))
	}
	checkSpecs(t, "IPAddressPool", append([]spec{
		{"both families and forms", "{addresses: [192.0.2.0/24, '2001:db8::/64', 198.51.100.7-198.51.100.9, '2001:db8:1::1-2001:db8:1::ffff']}", ""},
		{"all fields", "{addresses: [192.0.2.0/24], autoAssign: false, avoidBuggyIPs: true, disabled: true, priority: 10, maxPerNamespace: 4, coolDown: 10m, serviceAllocation: {namespaces: [shop], namespaceSelectors: [{matchLabels: {a: b}}], serviceSelectors: [{}]}}", ""},
		{"MetalLB's priority", "{addresses: [192.0.2.0/24], serviceAllocation: {priority: 10}}", ""},
		{"onPoolChange Renumber", "{addresses: [192.0.2.0/24], onPoolChange: Renumber}", ""},
		{"onPoolChange unknown", "{addresses: [192.0.2.0/24], onPoolChange: Drop}", "spec.onPoolChange: Unsupported value: \"Drop\": supported values: \"Keep\", \"Renumber\""},
		{"two priorities", "{addresses: [192.0.2.0/24], priority: 1, serviceAllocation: {priority: 10}}", "spec.priority: Invalid value: give the priority once"},
		{"priority negative", "{addresses: [192.0.2.0/24], priority: -1}", "spec.priority: Invalid value: -1: spec.priority in body should be greater than or equal to 0"},
		{"MetalLB's priority negative", "{addresses: [192.0.2.0/24], serviceAllocation: {priority: -1}}", "spec.serviceAllocation.priority: Invalid value: -1"},
		{"quota of none", "{addresses: [192.0.2.0/24], maxPerNamespace: 0}", "spec.maxPerNamespace: Invalid value: 0: spec.maxPerNamespace in body should be greater than or equal to 1"},
		{"coolDown of nothing", "{addresses: [192.0.2.0/24], coolDown: 0s}", "spec.coolDown: Invalid value: \"0s\": coolDown must be 1s to 168h"},
		{"coolDown too long", "{addresses: [192.0.2.0/24], coolDown: 169h}", "spec.coolDown: Invalid value: \"169h\": coolDown must be 1s to 168h"},
		{"coolDown in fractions", "{addresses: [192.0.2.0/24], coolDown: 1.5m}", "spec.coolDown: Invalid value: \"1.5m\": coolDown must be 1s to 168h"},
		{"coolDown a number", "{addresses: [192.0.2.0/24], coolDown: 10}", "spec.coolDown: Invalid value: \"integer\": spec.coolDown in body must be of type string"},
		{"namespace no name", "{addresses: [192.0.2.0/24], serviceAllocation: {namespaces: [Shop]}}", "spec.serviceAllocation.namespaces[0]: Invalid value: \"Shop\": must be the name of a namespace"},
		{"namespace twice", "{addresses: [192.0.2.0/24], serviceAllocation: {namespaces: [a, a]}}", "spec.serviceAllocation.namespaces[1]: Duplicate value: \"a\""},
		{"host bits", "{addresses: [192.0.2.0/24, 198.51.100.7/24]}", "spec.addresses[1]: Invalid value: \"198.51.100.7/24\": a CIDR must begin at its network address"},
		{"reversed", "{addresses: [192.0.2.20-192.0.2.10]}", "spec.addresses[0]: Invalid value: \"192.0.2.20-192.0.2.10\": the range is reversed: write the lower address first"},
		{"no spec.addresses", "{autoAssign: true}", "spec.addresses: Required value"},
		{"no addresses", "{addresses: []}", "spec.addresses: Invalid value: 0: spec.addresses in body should have at least 1 items"},
		{"an address twice", "{addresses: [192.0.2.0/24, 192.0.2.0/24]}", "spec.addresses[1]: Duplicate value: \"192.0.2.0/24\""},
		{"too many addresses", "{addresses: [" + strings.Join(many, ", ") + "]}", "spec.addresses: Too many: 65: must have at most 64 items"},
		{"a number", "{addresses: [7]}", "spec.addresses[0]: Invalid value: \"integer\": spec.addresses[0] in body must be of type string"},
		{"autoAssign as text", "{addresses: [192.0.2.0/24], autoAssign: 'no'}", "spec.autoAssign: Invalid value: \"string\": spec.autoAssign in body must be of type boolean"},
	}, nested("addresses: [192.0.2.0/24]", "serviceAllocation", slices.Concat(selectors("namespaceSelectors"), selectors("serviceSelectors")))...))
}

func TestL2AdvertisementSpec(t *testing.T) {
	t.Parallel()
	checkSpecs(t, "L2Advertisement", append([]spec{
		{"empty", "{}", ""},
		{"all fields", "{ipAddressPools: [layer2], ipAddressPoolSelectors: [{matchLabels: {a: b}}], nodeSelectors: [{}], serviceSelectors: [{matchLabels: {a: b}}], interfaces: [eth0, bond0.100]}", ""},
		{"interface name too long", "{interfaces: [abcdefghijklmnop]}", "spec.interfaces[0]: Too long: may not be more than 15 bytes"},
		{"interface name with white space", "{interfaces: [eth0, 'eth 1']}", "spec.interfaces[1]: Invalid value: \"eth 1\": must be the name of a network interface"},
		{"interface name with a slash", "{interfaces: [a/b]}", "spec.interfaces[0]: Invalid value: \"a/b\": must be the name of a network interface"},
		{"interface name with a colon", "{interfaces: ['eth0:1']}", "spec.interfaces[0]: Invalid value: \"eth0:1\": must be the name of a network interface"},
		{"interface name of dots", "{interfaces: [..]}", "spec.interfaces[0]: Invalid value: \"..\": must be the name of a network interface"},
		{"no interface name", "{interfaces: ['']}", "spec.interfaces[0]: Invalid value: \"\": must be the name of a network interface"},
		{"interface twice", "{interfaces: [eth0, eth0]}", "spec.interfaces[1]: Duplicate value: \"eth0\""},
	}, slices.Concat(
		names("ipAddressPools"), selectors("ipAddressPoolSelectors"), selectors("nodeSelectors"), selectors("serviceSelectors"),
	)...))
}

func TestBGPAdvertisementSpec(t *testing.T) {
	t.Parallel()
	const communities = "spec.communities[0]: Invalid value: %q: must be asn:value with both halves 0 to 65535"
	checkSpecs(t, "BGPAdvertisement", append([]spec{
		{"empty", "{}", ""},
		{"all fields", "{ipAddressPools: [bgp], ipAddressPoolSelectors: [{}], nodeSelectors: [{}], serviceSelectors: [{}], peers: [router-a], localPref: 4294967295, communities: ['64500:100', '65535:65281', '0:0']}", ""},
		{"localPref 0", "{localPref: 0}", ""},
		{"localPref negative", "{localPref: -1}", "spec.localPref: Invalid value: -1: spec.localPref in body should be greater than or equal to 0"},
		{"localPref too great", "{localPref: 4294967296}", "spec.localPref: Invalid value: 4294967296: spec.localPref in body should be less than or equal to 4294967295"},
		{"community without colon", "{communities: ['100']}", strings.ReplaceAll(communities, "%q", `"100"`)},
		{"community of three parts", "{communities: ['1:2:3']}", strings.ReplaceAll(communities, "%q", `"1:2:3"`)},
		{"community of letters", "{communities: ['no-export']}", strings.ReplaceAll(communities, "%q", `"no-export"`)},
		{"community with an ASN of 32 bits", "{communities: ['65536:1']}", strings.ReplaceAll(communities, "%q", `"65536:1"`)},
		{"community with a value too great", "{communities: ['1:65536']}", strings.ReplaceAll(communities, "%q", `"1:65536"`)},
		{"community with a sign", "{communities: ['-1:5']}", strings.ReplaceAll(communities, "%q", `"-1:5"`)},
		{"community too long", "{communities: ['000000:00000']}", "spec.communities[0]: Too long: may not be more than 11 bytes"},
		{"community twice", "{communities: ['1:1', '1:1']}", "spec.communities[1]: Duplicate value: \"1:1\""},
	}, slices.Concat(
		names("ipAddressPools"), names("peers"),
		selectors("ipAddressPoolSelectors"), selectors("nodeSelectors"), selectors("serviceSelectors"),
	)...))
}

func TestBGPPeerSpec(t *testing.T) {
	t.Parallel()
	const peer = "myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.1"
	with := func(fields string) string { return "{" + peer + ", " + fields + "}" }
	checkSpecs(t, "BGPPeer", append([]spec{
		{"the least", "{" + peer + "}", ""},
		{"all fields", with("peerPort: 1790, sourceAddress: 192.0.2.11, routerID: 192.0.2.11, holdTime: 9s, keepaliveTime: 3s, connectTime: 5s, passwordSecret: {name: router-a}, ebgpMultiHop: true, enableGracefulRestart: false, nodeSelectors: [{matchLabels: {rack: r1}}]"), ""},
		{"no myASN", "{peerASN: 64512, peerAddress: 192.0.2.1}", "spec.myASN: Required value"},
		{"no peerASN", "{myASN: 64500, peerAddress: 192.0.2.1}", "spec.peerASN: Required value"},
		{"no peerAddress", "{myASN: 64500, peerASN: 64512}", "spec.peerAddress: Required value"},
		{"IPv6", "{myASN: 64500, peerASN: 64500, peerAddress: '2001:db8::1', sourceAddress: '2001:db8::2'}", ""},
		{"ASNs of 32 bits", "{myASN: 4200000000, peerASN: 4294967294, peerAddress: 192.0.2.1}", ""},
		{"a daemon on the node", "{myASN: 64500, peerASN: 64512, peerAddress: 127.0.0.1}", ""},
		{"IPv4 link-local", "{myASN: 64500, peerASN: 64512, peerAddress: 169.254.1.1}", ""},

		{"myASN 0", "{myASN: 0, peerASN: 64512, peerAddress: 192.0.2.1}", "spec.myASN: Invalid value: 0: spec.myASN in body should be greater than or equal to 1"},
		{"myASN AS_TRANS", "{myASN: 23456, peerASN: 64512, peerAddress: 192.0.2.1}", "spec.myASN: Invalid value: 23456: myASN must be the number of a real autonomous system"},
		{"peerASN last of 16 bits", "{myASN: 64500, peerASN: 65535, peerAddress: 192.0.2.1}", "spec.peerASN: Invalid value: 65535: peerASN must be the number of a real autonomous system"},
		{"peerASN last of 32 bits", "{myASN: 64500, peerASN: 4294967295, peerAddress: 192.0.2.1}", "spec.peerASN: Invalid value: 4294967295: spec.peerASN in body should be less than or equal to 4294967294"},
		{"peerASN as text", "{myASN: 64500, peerASN: '64512', peerAddress: 192.0.2.1}", "spec.peerASN: Invalid value: \"string\": spec.peerASN in body must be of type integer"},

		{"peerAddress a name", "{myASN: 64500, peerASN: 64512, peerAddress: router}", "spec.peerAddress: Invalid value: \"router\": peerAddress must be the unicast address of a router"},
		{"peerAddress with a mask", "{myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.1/24}", "spec.peerAddress: Invalid value: \"192.0.2.1/24\": peerAddress must be the unicast address of a router"},
		{"peerAddress IPv4-mapped", "{myASN: 64500, peerASN: 64512, peerAddress: '::ffff:192.0.2.1'}", "spec.peerAddress: Invalid value: \"::ffff:192.0.2.1\": peerAddress must be the unicast"},
		{"peerAddress with a zone", "{myASN: 64500, peerASN: 64512, peerAddress: 'fe80::1%eth0'}", "spec.peerAddress: Invalid value: \"fe80::1%eth0\": peerAddress must be the unicast"},
		{"peerAddress IPv6 link-local", "{myASN: 64500, peerASN: 64512, peerAddress: 'fe80::1'}", "spec.peerAddress: Invalid value: \"fe80::1\": peerAddress must be the unicast"},
		{"peerAddress unspecified", "{myASN: 64500, peerASN: 64512, peerAddress: 0.0.0.0}", "spec.peerAddress: Invalid value: \"0.0.0.0\": peerAddress must be the unicast"},
		{"peerAddress multicast", "{myASN: 64500, peerASN: 64512, peerAddress: 224.0.0.5}", "spec.peerAddress: Invalid value: \"224.0.0.5\": peerAddress must be the unicast"},
		{"peerAddress empty", "{myASN: 64500, peerASN: 64512, peerAddress: ''}", "spec.peerAddress: Invalid value: \"\": peerAddress must be the unicast"},

		{"peerPort 0", with("peerPort: 0"), "spec.peerPort: Invalid value: 0: spec.peerPort in body should be greater than or equal to 1"},
		{"peerPort too great", with("peerPort: 65536"), "spec.peerPort: Invalid value: 65536: spec.peerPort in body should be less than or equal to 65535"},
		{"sourceAddress bad", with("sourceAddress: eth0"), "spec.sourceAddress: Invalid value: \"eth0\": sourceAddress must be a unicast address of the node"},
		{"sourceAddress of the other family", with("sourceAddress: '2001:db8::1'"), "spec.sourceAddress: Invalid value: sourceAddress must be of the same family as peerAddress"},
		{"routerID IPv6", with("routerID: '2001:db8::1'"), "spec.routerID: Invalid value: \"2001:db8::1\": routerID must be written as an IPv4 address"},
		{"routerID zero", with("routerID: 0.0.0.0"), "spec.routerID: Invalid value: \"0.0.0.0\": routerID must be written as an IPv4 address"},
		{"routerID a number", with("routerID: '7'"), "spec.routerID: Invalid value: \"7\": routerID must be written as an IPv4 address"},

		{"holdTime 0", with("holdTime: 0s"), "spec.holdTime: Invalid value: \"0s\": holdTime must be 3s to 65535s"},
		{"holdTime in minutes", with("holdTime: 1m30s, keepaliveTime: 1m29s"), ""},
		{"holdTime the longest", with("holdTime: 65535s"), ""},
		{"holdTime too short", with("holdTime: 2s"), "spec.holdTime: Invalid value: \"2s\": holdTime must be 3s to 65535s"},
		{"holdTime too long", with("holdTime: 65536s"), "spec.holdTime: Invalid value: \"65536s\": holdTime must be 3s to 65535s"},
		{"holdTime in parts of a second", with("holdTime: 3500ms"), "spec.holdTime: Invalid value: \"3500ms\": holdTime must be 3s to 65535s"},
		{"holdTime without unit", with("holdTime: '90'"), "spec.holdTime: Invalid value: \"90\": holdTime must be 3s to 65535s"},
		{"holdTime a number", with("holdTime: 90"), "spec.holdTime: Invalid value: \"integer\": spec.holdTime in body must be of type string"},
		{"holdTime negative", with("holdTime: -9s"), "spec.holdTime: Invalid value: \"-9s\": holdTime must be 3s to 65535s"},
		{"holdTime empty", with("holdTime: ''"), "spec.holdTime: Invalid value: \"\": holdTime must be 3s to 65535s"},
		{"holdTime in days", with("holdTime: 1d"), "spec.holdTime: Invalid value: \"1d\": holdTime must be 3s to 65535s"},
		{"keepaliveTime as long as holdTime", with("holdTime: 9s, keepaliveTime: 9s"), "spec.keepaliveTime: Invalid value: keepaliveTime must be at least 1s and less than holdTime"},
		{"keepaliveTime longer than the default holdTime", with("keepaliveTime: 90s"), "spec.keepaliveTime: Invalid value: keepaliveTime must be at least 1s and less than holdTime"},
		{"keepaliveTime 0", with("keepaliveTime: 0s"), "spec.keepaliveTime: Invalid value: keepaliveTime must be at least 1s and less than holdTime"},
		{"keepaliveTime bad", with("keepaliveTime: soon"), "spec.keepaliveTime: Invalid value: \"soon\": keepaliveTime must be whole seconds"},
		{"connectTime too short", with("connectTime: 0s"), "spec.connectTime: Invalid value: \"0s\": connectTime must be 1s to 65535s"},
		{"connectTime too long", with("connectTime: 19h"), "spec.connectTime: Invalid value: \"19h\": connectTime must be 1s to 65535s"},

		{"ebgpMultiHop with iBGP", "{myASN: 64500, peerASN: 64500, peerAddress: 192.0.2.1, ebgpMultiHop: true}", "spec.ebgpMultiHop: Invalid value: ebgpMultiHop is for eBGP only"},
		{"ebgpMultiHop false with iBGP", "{myASN: 64500, peerASN: 64500, peerAddress: 192.0.2.1, ebgpMultiHop: false}", ""},
		{"passwordSecret without name", with("passwordSecret: {}"), "spec.passwordSecret.name: Required value"},
		{"passwordSecret with an empty name", with("passwordSecret: {name: ''}"), "spec.passwordSecret.name: Invalid value: \"\": must be the name of a Secret"},
		{"passwordSecret with a bad name", with("passwordSecret: {name: ns/secret}"), "spec.passwordSecret.name: Invalid value: \"ns/secret\": must be the name of a Secret"},
	}, prefixed(peer, selectors("nodeSelectors"))...))
}

// names are the cases of a list of object names.
func names(field string) []spec {
	at := "spec." + field
	return []spec{
		{field + " good", "{" + field + ": [a, a-1, a.b, '1']}", ""},
		{field + " in capitals", "{" + field + ": [Router]}", at + "[0]: Invalid value: \"Router\": must be the name of an object"},
		{field + " empty", "{" + field + ": [a, '']}", at + "[1]: Invalid value: \"\": must be the name of an object"},
		{field + " with two dots", "{" + field + ": [a..b]}", at + "[0]: Invalid value: \"a..b\": must be the name of an object"},
		{field + " ends in a dash", "{" + field + ": [a-]}", at + "[0]: Invalid value: \"a-\": must be the name of an object"},
		{field + " twice", "{" + field + ": [a, b, a]}", at + "[2]: Duplicate value: \"a\""},
		{field + " too long", "{" + field + ": [" + strings.Repeat("a", 254) + "]}", at + "[0]: Too long: may not be more than 253 bytes"},
	}
}

// selectors are the cases of a list of label selectors.
func selectors(field string) []spec {
	const operator = "[0]: Invalid value: the operator of each of matchExpressions must be"
	at := "spec." + field
	expressions := func(e string) string { return "{" + field + ": [{matchExpressions: [" + e + "]}]}" }
	exists := strings.Repeat("{key: a, operator: Exists}, ", 15)
	return []spec{
		{field + " good", expressions("{key: a, operator: In, values: [b]}, {key: a, operator: NotIn, values: [c]}, {key: a, operator: Exists}, {key: a, operator: DoesNotExist, values: []}"), ""},
		{field + " with an unknown operator", expressions("{key: a, operator: Gt, values: ['1']}"), at + operator},
		{field + " In without values", expressions("{key: a, operator: In}"), at + operator},
		{field + " NotIn with no values", expressions("{key: a, operator: NotIn, values: []}"), at + operator},
		{field + " Exists with values", expressions("{key: a, operator: Exists, values: [b]}"), at + operator},
		{field + " bad at the end", expressions(exists + "{key: a, operator: exists}"), at + operator},
		{field + " with 16 expressions", expressions(exists + "{key: a, operator: Exists}"), ""},
		{field + " with 17 expressions", expressions(exists + "{key: a, operator: Exists}, {key: a, operator: Exists}"), at + "[0]: Invalid value: at most 16 matchExpressions"},
		{field + " too many", "{" + field + ": [" + strings.Repeat("{}, ", 16) + "{}]}", at + ": Too many: 17: must have at most 16 items"},
	}
}

// nested puts the fields of some cases into a field of a spec that has others.
func nested(others, field string, cases []spec) []spec {
	for i := range cases {
		cases[i].spec = "{" + others + ", " + field + ": " + cases[i].spec + "}"
		cases[i].want = strings.Replace(cases[i].want, "spec.", "spec."+field+".", 1)
	}
	return cases
}

// prefixed puts fields in front of the specs of some cases.
func prefixed(fields string, cases []spec) []spec {
	for i := range cases {
		cases[i].spec = "{" + fields + ", " + strings.TrimPrefix(cases[i].spec, "{")
	}
	return cases
}

// checkSpecs admits objects of a kind. One that is to be refused must be refused
// for the one reason given, so that no message stands beside one that misleads.
func checkSpecs(t *testing.T, kind string, cases []spec) {
	t.Helper()
	a := admissionOf(t, kind)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			object := admission.Parse(t, "{apiVersion: fairlead.dev/v1beta1, kind: "+kind+", metadata: {name: x}, spec: "+c.spec+"}")
			errs, unknown := a.Admit(t, object)
			if len(unknown) > 0 {
				t.Errorf("unknown fields: %q", unknown)
			}
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case c.want != "" && len(errs) == 0:
				t.Errorf("admitted, want %s", c.want)
			case c.want != "" && !strings.Contains(errs.ToAggregate().Error(), c.want):
				t.Errorf("refused for\n\t%v\nwant\n\t%s", errs.ToAggregate(), c.want)
			case len(errs) > 1:
				t.Errorf("more to say than needed: %v", errs.ToAggregate())
			case c.want == "":
				checkDecodes(t, kind, object)
			}
		})
	}
}

// checkDecodes holds that what the API server stores can be read in Go: a client
// that lists a kind gets nothing at all while one object of it cannot be.
func checkDecodes(t *testing.T, kind string, object map[string]any) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	typed, err := scheme.New(v1beta1.GroupVersion.WithKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true); err != nil {
		t.Errorf("admitted, but Go cannot read it: %v", err)
	}
}
