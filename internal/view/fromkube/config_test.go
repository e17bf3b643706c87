package fromkube_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// reasons are the reasons of problems, in order.
func reasons(problems []problem.Problem) string {
	var found []string
	for _, p := range problems {
		found = append(found, p.Reason)
	}
	return strings.Join(found, " ")
}

func TestPoolKeepsWhatItCanRead(t *testing.T) {
	pool, problems := fromkube.Pool(object[v1beta1.IPAddressPool](t, `
metadata: {name: p, labels: {tier: front}}
spec: {addresses: ["192.0.2.0/25", "192.0.2.128-192.0.2.129", "192.0.2.9-192.0.2.1", nonsense, "2001:db8::/64"], avoidBuggyIPs: true}
`))
	if got := reasons(problems); got != "InvalidAddresses InvalidAddresses" {
		t.Errorf("problems %v", problems)
	}
	if !strings.Contains(problems[0].Message, "spec.addresses[2]") || !strings.Contains(problems[0].Message, "192.0.2.1-192.0.2.9") {
		t.Errorf("the message names neither the field nor the way out: %s", problems[0].Message)
	}
	if got := fmt.Sprint(pool.Ranges); got != "[192.0.2.0-192.0.2.129 2001:db8::-2001:db8::ffff:ffff:ffff:ffff]" {
		t.Errorf("ranges %s", got)
	}
	if !pool.AutoAssign || !pool.AvoidBuggyIPs || pool.Labels["tier"] != "front" {
		t.Errorf("read as %+v", pool)
	}
}

// The schema looks at the ends of a range; what is between them is left out here.
func TestPoolLeavesOutWhatNoServiceCanHave(t *testing.T) {
	pool, problems := fromkube.Pool(object[v1beta1.IPAddressPool](t, `
metadata: {name: p}
spec: {addresses: ["126.255.255.254-128.0.0.1", "223.255.255.255-240.0.0.0", "fe7f::/16", "fe00::-fec0::"]}
`))
	if got := reasons(problems); got != "UnusableAddresses UnusableAddresses UnusableAddresses" {
		t.Errorf("problems %v", problems)
	}
	for _, p := range problems {
		if !p.Advisory {
			t.Errorf("%s takes the pool out of use", p.Reason)
		}
	}
	want := "[126.255.255.254-126.255.255.255 128.0.0.0-128.0.0.1 223.255.255.255-223.255.255.255 240.0.0.0-240.0.0.0 " +
		"fe00::-fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff fec0::-fec0::]"
	if got := fmt.Sprint(pool.Ranges); got != want {
		t.Errorf("ranges %s, want %s", got, want)
	}
}

func TestAdvertisements(t *testing.T) {
	l2, problems := fromkube.L2Advertisement(object[v1beta1.L2Advertisement](t, `
metadata: {name: l2}
spec:
  ipAddressPools: [p]
  nodeSelectors: [{matchLabels: {rack: r1}}, {matchExpressions: [{key: k, operator: Nonsense}]}]
  preferredNodeSelectors:
    - {weight: 60, preference: {matchLabels: {rack: r1}}}
    - {weight: 50, preference: {matchLabels: {fast: "true"}}}
    - {weight: 1, preference: {}}
    - {weight: 100, preference: {matchExpressions: [{key: k, operator: Nonsense}]}}
  interfaces: [eth0]
`))
	if got := reasons(problems); got != "InvalidSelector InvalidSelector" {
		t.Errorf("problems %v", problems)
	}
	for rack, want := range map[string]int{"r1": 111, "r2": 51} {
		if got := l2.Prefers(map[string]string{"rack": rack, "fast": "true"}); got != want {
			t.Errorf("a fast node in rack %s is preferred by %d, want %d", rack, got, want)
		}
	}
	if len(l2.NodeSelectors) != 2 || !l2.NodeSelectors[0].Matches(map[string]string{"rack": "r1"}) || l2.NodeSelectors[1].Matches(nil) {
		t.Error("a selector that cannot be read must match nothing, and leave the others as they are")
	}
	bgp, problems := fromkube.BGPAdvertisement(object[v1beta1.BGPAdvertisement](t, `
metadata: {name: bgp}
spec:
  communities: ["65535:65281", "64500:100", "1:70000", "x", blackhole, "large:4200000000:2:1", "large:1:2", "large:1:2:3:4", "1:2:3"]
  localPref: 4294967295
  med: 0
  asPathPrepend: 2
  aggregationLength: 24
  linkBandwidthPerEndpoint: 100000
  withoutEndpoints: true
  peers: [tor]
`))
	if got := reasons(problems); got != strings.TrimSpace(strings.Repeat("InvalidCommunity ", 4)) {
		t.Errorf("problems %v", problems)
	}
	if got := fmt.Sprintf("%x %v %d", bgp.Communities, bgp.LargeCommunities, bgp.LocalPref); got != "[fbf40064 ffff029a ffffff01] [{4200000000 2 1}] 4294967295" {
		t.Errorf("communities and local preference %s", got)
	}
	if got := strings.Join(bgp.CommunityNames, " "); got != "x" {
		t.Errorf("names of communities %q, want x", got)
	}
	names, problems := fromkube.Community(object[v1beta1.Community](t, `
metadata: {name: ours}
spec:
  communities: [{name: vpn-only, value: "64500:100"}, {name: far, value: "large:64500:1:2"}, {name: none, value: "1:70000"}]
`))
	if got := reasons(problems); got != "InvalidCommunity" {
		t.Errorf("problems %v", problems)
	}
	if v := names.Values; len(v) != 2 || v["vpn-only"].Standard != 0xfbf40064 || v["far"].Large == nil || v["far"].Large.Local1 != 1 {
		t.Errorf("names %+v", v)
	}
	if bgp.MED == nil || *bgp.MED != 0 || bgp.Prepend != 2 || bgp.EndpointBandwidth != 100000 || !bgp.WithoutEndpoints || bgp.AggregationLength[addr.IPv4] != 24 || bgp.AggregationLength[addr.IPv6] != 0 {
		t.Errorf("read as %+v", bgp)
	}
}

func TestAnnounceInterval(t *testing.T) {
	for spec, want := range map[string]time.Duration{
		"{}": time.Minute, "{announceInterval: 0s}": 0, "{announceInterval: 1m30s}": 90 * time.Second,
	} {
		l2, problems := fromkube.L2Advertisement(object[v1beta1.L2Advertisement](t, "metadata: {name: l2}\nspec: "+spec))
		if l2.AnnounceInterval != want || len(problems) > 0 {
			t.Errorf("%s: announced again every %v, want %v; problems %v", spec, l2.AnnounceInterval, want, problems)
		}
	}
}

func TestPreempt(t *testing.T) {
	for spec, want := range map[string]bool{"{}": false, "{preempt: Always}": false, "{preempt: Never}": true} {
		l2, problems := fromkube.L2Advertisement(object[v1beta1.L2Advertisement](t, "metadata: {name: l2}\nspec: "+spec))
		if l2.NoPreempt != want || len(problems) > 0 {
			t.Errorf("%s: no preemption %t, want %t; problems %v", spec, l2.NoPreempt, want, problems)
		}
	}
}

func TestPeerDefaults(t *testing.T) {
	peer, problems := fromkube.BGPPeer(object[v1beta1.BGPPeer](t, `
metadata: {name: tor, creationTimestamp: "2026-01-02T03:04:05Z"}
spec: {myASN: 4200000001, peerASN: 64512, peerAddress: "2001:db8::1", holdTime: 9s}
`), nil)
	if len(problems) != 0 || peer.Unusable != nil {
		t.Fatalf("problems %v", problems)
	}
	if peer.MyASN != 4200000001 || peer.PeerPort != 179 || peer.KeepaliveTime != 3*time.Second || peer.ConnectTime != 10*time.Second ||
		!peer.GracefulRestart || peer.DynamicASN || peer.Created.UTC() != time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) || peer.PeerAddress != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("read as %+v", peer)
	}
}

func TestPeerNumbersAndFamilies(t *testing.T) {
	for text, want := range map[string]string{
		"{myASN: 1, localASN: 7, dynamicASN: internal, peerAddress: 192.0.2.1}":                     "7 7 false false",
		"{myASN: 1, localASN: 7, dynamicASN: external, peerAddress: 192.0.2.1, ttlSecurity: true}":  "7 0 false true",
		"{myASN: 1, dynamicASN: internal, peerAddress: 192.0.2.1, dualStackAddressFamily: false}":   "1 1 true false",
		"{myASN: 1, localASN: 7, peerASN: 1, peerAddress: 192.0.2.1, dualStackAddressFamily: true}": "7 1 false false",
	} {
		peer, problems := fromkube.BGPPeer(object[v1beta1.BGPPeer](t, "metadata: {name: tor}\nspec: "+text), nil)
		if got := fmt.Sprint(peer.MyASN, peer.PeerASN, peer.OneFamily, peer.TTLSecurity); got != want || len(problems) != 0 || peer.DynamicASN != strings.Contains(text, "dynamicASN") {
			t.Errorf("%s: %s, want %s; problems %v", text, got, want, problems)
		}
	}
}

func TestAPeerThatIsNotWholeIsUnusable(t *testing.T) {
	secrets := map[string]*corev1.Secret{
		"good":  {Data: map[string][]byte{"password": []byte("hunter2")}},
		"empty": {Data: map[string][]byte{"other": []byte("x")}},
		"most":  {Data: map[string][]byte{"password": []byte(strings.Repeat("hunter2!", 10))}},
		"long":  {Data: map[string][]byte{"password": []byte(strings.Repeat("hunter2!", 10) + "x")}},
		"blank": {Data: map[string][]byte{"password": []byte("\r\n")}},
	}
	find := func(name string) (*corev1.Secret, bool) { s, ok := secrets[name]; return s, ok }
	for text, want := range map[string]string{
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, passwordSecret: {name: good}}`:                      "",
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, passwordSecret: {name: missing}}`:                   fromkube.ReasonSecretMissing,
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, passwordSecret: {name: empty}}`:                     fromkube.ReasonSecretInvalid,
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, passwordSecret: {name: most}}`:                      "",
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, passwordSecret: {name: long}}`:                      fromkube.ReasonSecretInvalid,
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, passwordSecret: {name: blank}}`:                     fromkube.ReasonSecretInvalid,
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, password: "\n"}`:                                    fromkube.ReasonInvalidPeer,
		`{myASN: 1, peerASN: 2, peerAddress: nonsense}`:                                                     fromkube.ReasonInvalidPeer,
		`{myASN: 1, dynamicASN: external, peerAddress: 192.0.2.1}`:                                          "",
		`{myASN: 1, peerAddress: 192.0.2.1}`:                                                                fromkube.ReasonInvalidPeer,
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, password: hunter2}`:                                 "",
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, password: hunter2, passwordSecret: {name: good}}`:   fromkube.ReasonInvalidPeer,
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, password: "` + strings.Repeat("hunter2ß", 9) + `"}`: fromkube.ReasonInvalidPeer,
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, vrf: red}`:                                          fromkube.ReasonInvalidPeer,

		`{myASN: 1, peerASN: 2}`:                                                  fromkube.ReasonInvalidPeer,
		`{myASN: 0, peerASN: 2, peerAddress: 192.0.2.1}`:                          fromkube.ReasonInvalidPeer,
		`{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, routerID: "2001:db8::1"}`: fromkube.ReasonInvalidPeer,
	} {
		peer, problems := fromkube.BGPPeer(object[v1beta1.BGPPeer](t, "metadata: {name: tor}\nspec: "+text), find)
		if got := reasons(problems); got != want || (peer.Unusable != nil) != (want != "") {
			t.Errorf("%s: problems %v, unusable %v, want %q", text, problems, peer.Unusable, want)
		}
		if shown := fmt.Sprintf("%v %+v %#v %s", peer, *peer, *peer, peer.Password); strings.Contains(shown, "hunter2") {
			t.Errorf("the password can be read: %s", shown)
		}
	}
}

// TestALineBreakIsNoPartOfAPassword: echo, editors and blocks of YAML end with one, and no router can be given it.
func TestALineBreakIsNoPartOfAPassword(t *testing.T) {
	t.Parallel()
	find := func(string) (*corev1.Secret, bool) {
		return &corev1.Secret{Data: map[string][]byte{"password": []byte(" hunter2 \r\n")}}, true
	}
	for _, text := range []string{`passwordSecret: {name: tor}`, `password: " hunter2 \n"`} {
		peer, problems := fromkube.BGPPeer(object[v1beta1.BGPPeer](t, "metadata: {name: tor}\nspec: {myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, "+text+"}"), find)
		if string(peer.Password) != " hunter2 " || len(problems) > 0 {
			t.Errorf("%s: the key has %d bytes, problems %v", text, len(string(peer.Password)), problems)
		}
	}
}
