package metallb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/metallb"
	"fairlead.dev/fairlead/internal/testenv/admission"
)

var in = metallb.Namespaces{MetalLB: "metallb-system", Fairlead: "fairlead-system"}

// translate translates a text that can be read.
func translate(t *testing.T, text string) *metallb.Translation {
	t.Helper()
	objects, err := metallb.ReadDocuments([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return metallb.Translate(objects, in)
}

// told is all findings, a line each.
func told(translation *metallb.Translation) string {
	var b strings.Builder
	for _, f := range translation.Findings {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

// TestFiles translates whole clusters: NAME.yaml to NAME.ours, telling NAME.told.
func TestFiles(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, path := range inputs {
		translation := translate(t, readFile(t, path))
		manifest, err := translation.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(path, ".yaml")
		if diff := cmp.Diff(readFile(t, name+".ours"), string(manifest)); diff != "" {
			t.Errorf("%s: objects (-want +got):\n%s", path, diff)
		}
		if diff := cmp.Diff(readFile(t, name+".told"), told(translation)); diff != "" {
			t.Errorf("%s: findings (-want +got):\n%s", path, diff)
		}
	}
}

// TestTheOrderOfObjectsDoesNotMatter: an API server lists kinds that are not known here in any order.
func TestTheOrderOfObjectsDoesNotMatter(t *testing.T) {
	t.Parallel()
	one := "apiVersion: metallb.io/v1\nkind: One\nmetadata: {name: same}\n"
	two := "apiVersion: metallb.io/v1\nkind: Two\nmetadata: {name: same}\n"
	first, again := told(translate(t, one+"---\n"+two)), told(translate(t, two+"---\n"+one))
	if !strings.Contains(first, "One/same") || first != again {
		t.Errorf("told\n%s and in the other order\n%s", first, again)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWhatCannotBeSaid leaves objects out that would not be admitted or would mean
// more than they do, and names the field.
func TestWhatCannotBeSaid(t *testing.T) {
	t.Parallel()
	const peer = "myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.1"
	many := func(format string, n int) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(format, "N", string(rune('a'+i/26))+string(rune('a'+i%26))))
		}
		return strings.Join(all, ", ")
	}
	for _, c := range []struct{ kind, spec, want string }{
		{"IPAddressPool", "{}", "LOST    IPAddressPool/x spec.addresses: a pool must have addresses"},
		{"IPAddressPool", "{addresses: [192.0.2.9-192.0.2.1]}", `spec.addresses="192.0.2.9-192.0.2.1": range "192.0.2.9-192.0.2.1" is reversed`},
		{"IPAddressPool", "{addresses: ['fe80::/64']}", `spec.addresses="fe80::/64": begins or ends with an address that no other machine can reach`},
		{"IPAddressPool", "{addresses: ['::ffff:192.0.2.0/120']}", "write the IPv4 address itself"},
		{"IPAddressPool", "{addresses: 192.0.2.0/24}", "LOST    IPAddressPool/x spec: cannot be read"},
		{"IPAddressPool", "{addresses: [192.0.2.0/24], serviceAllocation: {namespaces: [A]}}", `spec.serviceAllocation.namespaces="A": not the name of a namespace`},
		{"L2Advertisement", "{ipAddressPools: [" + many("N", 65) + "]}", "spec.ipAddressPools=65: more than 64 names"},
		{"L2Advertisement", "{nodeSelectors: [" + many("{matchLabels: {a: N}}", 17) + "]}", "spec.nodeSelectors=17: more than 16 selectors"},
		{"L2Advertisement", "{nodeSelectors: [{matchExpressions: [" + many("{key: N, operator: Exists}", 17) + "]}]}", "more than 16 matchExpressions"},
		{"L2Advertisement", "{nodeSelectors: [{matchExpressions: [{key: a, operator: In}]}]}", "not a selector"},
		{"L2Advertisement", "{interfaces: ['eth0:1']}", `spec.interfaces="eth0:1": not the name of a network interface`},
		{"BGPAdvertisement", "{communities: ['large:1:2']}", `spec.communities="large:1:2": neither asn:value`},
		{"BGPAdvertisement", "{communities: ['65536:1', '64500:1']}", `spec.communities="65536:1": neither asn:value`},
		{"BGPAdvertisement", "{communities: ['not a name']}", `spec.communities="not a name": neither asn:value`},
		{"BGPAdvertisement", "{communities: [" + many("xN", 65) + "]}", "spec.communities=65: more than 64 communities"},
		{"BGPAdvertisement", "{peers: [Tor]}", `spec.peers="Tor": not the name of an object`},
		{"BGPPeer", "{peerASN: 64512, peerAddress: 192.0.2.1}", "spec.myASN=0: not the number of an autonomous system"},
		{"BGPPeer", "{" + peer + ", peerPort: 65536}", "spec.peerPort=65536: must be 1 to 65535"},
		{"BGPPeer", "{" + peer + ", vrf: red}", `spec.vrf="red": there are no sessions in VRFs`},
		{"BGPPeer", "{" + peer + ", interface: eth0}", `spec.interface="eth0": there is a peerAddress as well`},
		{"BGPPeer", "{myASN: 64500, peerASN: 64512, interface: 'a b'}", `spec.interface="a b": not the name of a network interface`},
		{"BGPPeer", "{" + peer + ", sourceAddress: '2001:db8::1'}", "must be a unicast address of the family of peerAddress"},
		{"BGPPeer", "{" + peer + ", routerID: 0.0.0.0}", `spec.routerID="0.0.0.0": must be written as an IPv4 address`},
		{"BGPPeer", "{" + peer + ", passwordSecret: {name: A}}", `spec.passwordSecret="A": not the name of a Secret`},
		{"BGPPeer", "{" + peer + ", password: x, passwordSecret: {name: a}}", "spec.password: there is a passwordSecret as well"},
		{"BGPPeer", "{" + peer + ", nodeSelectors: [{matchExpressions: [{key: a, operator: Gt, values: ['1']}]}]}", "not a selector"},
		{"BGPPeer", "{myASN: 64500, peerASN: 64512, peerAddress: 'fe80::1%eth0'}", "no IPv6 link-local address"},
		{"BGPPeer", "{" + peer + ", dynamicASN: external}", `spec.dynamicASN="external": there is a peerASN as well`},
		{"BGPPeer", "{" + peer + ", localASN: 65535}", "spec.localASN=65535: not the number of an autonomous system"},
		{"BGPPeer", "{myASN: 64500, dynamicASN: any, peerAddress: 192.0.2.1}", `spec.dynamicASN="any": must be internal or external`},
	} {
		translation := translate(t, "{apiVersion: metallb.io/v1beta1, kind: "+c.kind+", metadata: {name: x}, spec: "+c.spec+"}")
		if manifest, err := translation.Manifest(); err != nil || len(manifest) > 0 {
			t.Errorf("%s %s: got %v\n%s", c.kind, c.spec, err, manifest)
		}
		if got := told(translation); !strings.Contains(got, c.want) || !strings.Contains(got, "the object is left out") || translation.Lost() == 0 {
			t.Errorf("%s %s: told\n%swant %s", c.kind, c.spec, got, c.want)
		}
	}
}

// TestWhatIsLost prints the object without what it cannot say, and names the field.
func TestWhatIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, spec, want, lacks string }{
		{"IPAddressPool", "{addresses: [192.0.2.0/24], serviceAllocation: {priority: -1}}", "LOST    IPAddressPool/x spec.serviceAllocation.priority=-1", "priority"},
		{"IPAddressPool", "{addresses: [192.0.2.0/24], serviceAllocation: {new: {a: 1}}}", `LOST    IPAddressPool/x spec.serviceAllocation.new={"a":1}`, "new"},
		{"BFDProfile", "{echoMode: true, passiveMode: true}", "LOST    BFDProfile/x spec.echoMode=true", "echoMode"},
		{"BFDProfile", "{receiveInterval: 5}", "LOST    BFDProfile/x spec.receiveInterval=5: must be 10 to 60000", "receiveInterval"},
		{"BGPPeer", "{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, bfdProfile: A}", `LOST    BGPPeer/x spec.bfdProfile="A"`, "bfdProfile"},
		{"BGPAdvertisement", "{localPref: 4294967296}", "LOST    BGPAdvertisement/x spec.localPref=4294967296", "localPref"},
		{"BGPAdvertisement", "{aggregationLength: 33}", "LOST    BGPAdvertisement/x spec.aggregationLength=33: must be 1 to 32", "aggregationLength"},
		{"BGPAdvertisement", "{aggregationLengthV6: 64, serviceSelectors: [{}]}", "LOST    BGPAdvertisement/x spec.aggregationLengthV6=64", "aggregationLength"},
		{"BGPAdvertisement", "{aggregationLength: 24}", "DIFFERS BGPAdvertisement/x spec.aggregationLength=24: an aggregate that a pool does not hold as a whole is announced address by address, which filters of routers must let pass", "aggregationLengthV6"},
		{"Community", "{communities: [{name: '7up', value: '1:1'}]}", `DIFFERS Community/x spec.communities="7up": not a name`, "7up"},
		{"Community", "{communities: [{name: a, value: '1:1'}, {name: a, value: '1:2'}]}", `LOST    Community/x spec.communities="a": another Community has this name`, "1:2"},
		{"BGPPeer", "{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1}", "DIFFERS BGPPeer/x spec.holdTime: left out, it means 90s, while it means 180s", "holdTime"},
		{"BGPPeer", "{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, holdTime: 1s}", `LOST    BGPPeer/x spec.holdTime="1s": must be 3s to`, "holdTime"},
		{"BGPPeer", "{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, connectTime: 100h}", `LOST    BGPPeer/x spec.connectTime="100h0m0s"`, "connectTime"},
		{"BGPPeer", "{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, passwordNew: hunter2}", "LOST    BGPPeer/x spec.passwordNew: a field that is not known", "hunter2"},
		{"BGPPeer", "{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, password: hunter2}", "DO      BGPPeer/x spec.password: ", "hunter2"},
	} {
		translation := translate(t, "{apiVersion: metallb.io/v1beta2, kind: "+c.kind+", metadata: {name: x}, spec: "+c.spec+"}")
		manifest, err := translation.Manifest()
		if err != nil || len(manifest) == 0 || strings.Contains(string(manifest), c.lacks) {
			t.Errorf("%s %s: %v\n%s", c.kind, c.spec, err, manifest)
		}
		if got := told(translation); !strings.Contains(got, c.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s %s: told\n%swant %s", c.kind, c.spec, got, c.want)
		}
	}
}

// TestExcludedInterfaces loses patterns that a user has written, and names them. Those that
// MetalLB comes with change nothing.
func TestExcludedInterfaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patterns, want string
		lost           int
	}{
		{`["^docker.*", "^lo$"]`, "DIFFERS ConfigMap/metallb-excludel2 data[excludel2.yaml]: not needed", 0},
		{`["docker.*", "lo", "^cali.*", "flannel.*"]`, "DIFFERS ConfigMap/metallb-excludel2 data[excludel2.yaml]: not needed", 0}, // of older releases
		{`["^docker.*", "^eth1$", "bond.*"]`, `LOST    ConfigMap/metallb-excludel2 data[excludel2.yaml]=["^eth1$","bond.*"]: there are no patterns`, 1},
		{"7", "LOST    ConfigMap/metallb-excludel2 data[excludel2.yaml]: cannot be read", 1},
	} {
		translation := translate(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: metallb-excludel2}, data: {excludel2.yaml: 'announcedInterfacesToExclude: "+c.patterns+"'}}")
		if got := told(translation); !strings.Contains(got, c.want) || translation.Lost() != c.lost {
			t.Errorf("%s: %d are lost, told\n%swant %s", c.patterns, translation.Lost(), got, c.want)
		}
	}
}

// TestTheFormerConfiguration loses what releases had before they had kinds, known by what is in it: any program may have a ConfigMap of that name.
func TestTheFormerConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"'address-pools: [{name: a, protocol: layer2, addresses: [192.0.2.0/24]}]'": "LOST    ConfigMap/config data[config]: the configuration of MetalLB up to v0.12",
		"'peers: [{my-asn: 64500, peer-asn: 64512, password: hunter2}]'":            "LOST    ConfigMap/config data[config]: the configuration of MetalLB up to v0.12",
		"'verbose: true'": "DIFFERS ConfigMap/config apiVersion=\"v1\": not one of MetalLB's kinds",
	} {
		translation := translate(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {config: "+text+"}}")
		if got := told(translation); !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: told\n%swant %s", text, got, want)
		}
	}
}

// TestManyEntriesAreJoined says a pool of many neighbours in the entries that we take.
func TestManyEntriesAreJoined(t *testing.T) {
	t.Parallel()
	var entries []string
	for i := range 100 {
		entries = append(entries, fmt.Sprintf("192.0.2.%d/32", i))
	}
	translation := translate(t, "{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: x}, spec: {addresses: ["+strings.Join(entries, ", ")+"]}}")
	if len(translation.Pools) != 1 || len(translation.Pools[0].Spec.Addresses) != 1 || translation.Pools[0].Spec.Addresses[0] != "192.0.2.0-192.0.2.99" {
		t.Errorf("got %+v, told\n%s", translation.Pools, told(translation))
	}
}

// TestTextsThatCannotBeRead names the document and what is wrong with it.
func TestTextsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const object = "{apiVersion: metallb.io/v1beta1, kind: L2Advertisement, metadata: {name: x}}"
	for text, want := range map[string]string{
		object + "\n---\n7\n":                      "document 2: it is not an object",
		object + "\n---\n{kind: X}":                "document 2: an object has no apiVersion or no kind",
		object + "\n--- " + object:                 "document 1: invalid Yaml document separator",
		object + "\r--- " + object:                 "document 1: invalid Yaml document separator",
		object + "\n...\n" + object:                "separate documents by ---",
		"{apiVersion: v1, apiVersion: v2}":         "document 1: ",
		"{apiVersion: v1, kind: List":              "document 1: ",
		"{apiVersion: v1, kind: List, items: 1}":   "items of the List are not a list",
		"{apiVersion: v1, kind: List, items: [1]}": "items[0] of the List is not an object",
	} {
		objects, err := metallb.ReadDocuments([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v and %d objects, want %q", text, err, len(objects), want)
		}
	}
	objects, err := metallb.ReadDocuments([]byte("# nothing\n---\n---\n# x\n" + object + "\r\n---\r\n" + object))
	if err != nil || len(objects) != 2 {
		t.Errorf("got %v and %d objects, want 2", err, len(objects))
	}
}

// checkAdmitted takes what is printed as the API server would.
func checkAdmitted(t *testing.T, kinds map[string]*admission.Admission, translation *metallb.Translation) {
	t.Helper()
	manifest, err := translation.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metallb.ReadDocuments(manifest)
	if err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
	if want := len(translation.Pools) + len(translation.BFD) + len(translation.Peers) + len(translation.L2) + len(translation.BGP) + len(translation.Communities); len(objects) != want {
		t.Fatalf("printed %d objects of %d\n%s", len(objects), want, manifest)
	}
	for _, u := range objects {
		if errs, unknown := kinds[u.GetKind()].Admit(t, u.Object); len(errs) > 0 || len(unknown) > 0 {
			t.Fatalf("refused: %v, unknown fields %q\n%s", errs.ToAggregate(), unknown, manifest)
		}
	}
}

func admissions(t testing.TB) map[string]*admission.Admission {
	t.Helper()
	kinds := map[string]*admission.Admission{}
	for kind, d := range admission.Definitions(t, "../../config/crd") {
		kinds[kind] = d.Admission(t)
	}
	return kinds
}

// FuzzTranslate holds that any text is refused or translated, and that what is
// printed is admitted.
func FuzzTranslate(f *testing.F) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range inputs {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			f.Add([]byte(document))
		}
	}
	kinds := admissions(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, err := metallb.ReadDocuments(text)
		if err != nil {
			return
		}
		checkAdmitted(t, kinds, metallb.Translate(objects, in))
	})
}
