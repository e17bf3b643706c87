package malformed

import (
	"slices"
	"strings"
)

// l2Advertisements are the cases of L2Advertisement.
func l2Advertisements() []Case {
	return append(cases("L2Advertisement", append([]spec{
		{"empty", "{}", ""},
		{"all fields", "{ipAddressPools: [layer2], ipAddressPoolSelectors: [{matchLabels: {a: b}}], nodeSelectors: [{}], preferredNodeSelectors: [{weight: 1, preference: {}}, {weight: 100, preference: {matchLabels: {a: b}}}], serviceSelectors: [{matchLabels: {a: b}}], interfaces: [eth0, bond0.100], announceInterval: 30s}", ""},
		{"preference without weight", "{preferredNodeSelectors: [{preference: {}}]}", "spec.preferredNodeSelectors[0].weight: Required value"},
		{"preference of weight 0", "{preferredNodeSelectors: [{weight: 0, preference: {}}]}", "spec.preferredNodeSelectors[0].weight: Invalid value: 0: spec.preferredNodeSelectors[0].weight in body should be greater than or equal to 1"},
		{"preference of weight 101", "{preferredNodeSelectors: [{weight: 101, preference: {}}]}", "spec.preferredNodeSelectors[0].weight: Invalid value: 101: spec.preferredNodeSelectors[0].weight in body should be less than or equal to 100"},
		{"preference without selector", "{preferredNodeSelectors: [{weight: 1}]}", "spec.preferredNodeSelectors[0].preference: Required value"},
		{"preference with an unknown operator", "{preferredNodeSelectors: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}]}", "spec.preferredNodeSelectors[0].preference: Invalid value: the operator of each of matchExpressions must be"},
		{"preference with 17 expressions", "{preferredNodeSelectors: [{weight: 1, preference: {matchExpressions: [" + strings.Repeat("{key: a, operator: Exists}, ", 16) + "{key: a, operator: Exists}]}}]}", "spec.preferredNodeSelectors[0].preference: Invalid value: at most 16 matchExpressions"},
		{"preferences too many", "{preferredNodeSelectors: [" + strings.Repeat("{weight: 1, preference: {}}, ", 16) + "{weight: 1, preference: {}}]}", "spec.preferredNodeSelectors: Too many: 17: must have at most 16 items"},
		{"interface name too long", "{interfaces: [abcdefghijklmnop]}", "spec.interfaces[0]: Too long: may not be more than 15 bytes"},
		{"interface name with white space", "{interfaces: [eth0, 'eth 1']}", "spec.interfaces[1]: Invalid value: \"eth 1\": must be the name of a network interface"},
		{"announceInterval of never", "{announceInterval: 0s}", ""},
		{"announceInterval the shortest", "{announceInterval: 5s}", ""},
		{"announceInterval the longest", "{announceInterval: 59m60s}", ""},
		{"announceInterval a number", "{announceInterval: 60}", "spec.announceInterval: Invalid value: \"integer\": spec.announceInterval in body must be of type string"},
		{"interface twice", "{interfaces: [eth0, eth0]}", "spec.interfaces[1]: Duplicate value: \"eth0\""},
	}, slices.Concat(
		names("ipAddressPools"), selectors("ipAddressPoolSelectors"), selectors("nodeSelectors"), selectors("serviceSelectors"),
		refused("interfaces[]", "must be the name of a network interface", "a/b", "eth0:1", "..", ""),
		refused("announceInterval", "announceInterval must be 5s to 1h in whole seconds, such as 1m, or 0s for never", "4s", "3601s", "5500ms", "-5s", "0"),
	)...)), conditions("L2Advertisement", narrowing())...)
}

// bgpAdvertisements are the cases of BGPAdvertisement.
func bgpAdvertisements() []Case {
	return append(cases("BGPAdvertisement", append([]spec{
		{"empty", "{}", ""},
		{"all fields", "{ipAddressPools: [bgp], ipAddressPoolSelectors: [{}], nodeSelectors: [{}], serviceSelectors: [{}], peers: [router-a], aggregationLength: 32, aggregationLengthV6: 128, localPref: 4294967295, med: 4294967295, asPathPrepend: 16, linkBandwidthPerEndpoint: 100000, withoutEndpoints: true, communities: ['64500:100', '65535:65281', '0:0', 'large:4294967295:0:1', no-export, graceful-shutdown, vpn-only, NO_EXPORT, a.b]}", ""},
		{"aggregates", "{aggregationLength: 1, aggregationLengthV6: 1}", ""},
		{"aggregates and all Services", "{aggregationLength: 24, serviceSelectors: []}", ""},
		{"aggregates of some Services", "{aggregationLength: 24, serviceSelectors: [{}]}", "spec.serviceSelectors: Invalid value: serviceSelectors and an aggregation length exclude each other"},
		{"IPv6 aggregates of some Services", "{aggregationLengthV6: 64, serviceSelectors: [{}]}", "spec.serviceSelectors: Invalid value: serviceSelectors and an aggregation length exclude each other"},
		{"med 0", "{med: 0}", ""},
		{"bandwidth of aggregates", "{linkBandwidthPerEndpoint: 1, aggregationLength: 24}", "spec.linkBandwidthPerEndpoint: Invalid value: linkBandwidthPerEndpoint and an aggregation length exclude each other"},
		{"bandwidth of IPv6 aggregates", "{linkBandwidthPerEndpoint: 1, aggregationLengthV6: 64}", "spec.linkBandwidthPerEndpoint: Invalid value: linkBandwidthPerEndpoint and an aggregation length exclude each other"},
		{"localPref 0", "{localPref: 0}", ""},
		{"community too long", "{communities: [" + strings.Repeat("a", 64) + "]}", "spec.communities[0]: Too long: may not be more than 63 bytes"},
		{"community twice", "{communities: ['1:1', '1:1']}", "spec.communities[1]: Duplicate value: \"1:1\""},
	}, slices.Concat(
		names("ipAddressPools"), names("peers"),
		selectors("ipAddressPoolSelectors"), selectors("nodeSelectors"), selectors("serviceSelectors"),
		limits("aggregationLength", 1, 32), limits("aggregationLengthV6", 1, 128), limits("med", 0, 4294967295),
		limits("localPref", 0, 4294967295), limits("asPathPrepend", 0, 16), limits("linkBandwidthPerEndpoint", 1, 100000),
		refused("communities[]", "must be asn:value with both halves 0 to 65535", "100", "1:2:3", "vpn-", "vpn only", "large:1:2", "large:1:2:4294967296",
			"65536:1", "1:65536", "-1:5", "large:04294967295:4294967295:4294967295"),
	)...)), conditions("BGPAdvertisement", append(narrowing(),
		told{"peers missing", "{peers: [neighbour, missing]}", "spec.peers", "PeerNotFound", `spec.peers: there is no BGPPeer "missing"`},
		told{"nodeSelectors of no node", "{nodeSelectors: [{matchLabels: {is: missing}}]}", "spec.nodeSelectors", "NoNodeSelected", "nothing is announced by it: the advertisement chooses no node"},
		told{"serviceSelectors of no Service", "{serviceSelectors: [{matchLabels: {is: missing}}]}", "spec.serviceSelectors", "NoServiceSelected", "spec.serviceSelectors: no Service of type LoadBalancer has such labels"},
		told{"localPref to no iBGP peer", "{localPref: 200, peers: [neighbour]}", "spec.localPref", "FieldUnused", "spec.localPref: is sent to iBGP peers only"},
		told{"aggregationLengthV6 of no pool", "{aggregationLengthV6: 64, ipAddressPools: [neighbour]}", "spec.aggregationLengthV6", "FieldUnused", "spec.aggregationLengthV6: no IPAddressPool that this is for has IPv6 addresses"},
		told{"communities missing", "{communities: [no-export, no-exports]}", "spec.communities", "CommunityNotFound", `spec.communities: no Community has the name "no-exports"`},
	))...)
}

// narrowing are the cases of what both kinds of advertisements choose by.
func narrowing() []told {
	return slices.Concat([]told{
		{"ipAddressPools missing", "{ipAddressPools: [neighbour, missing]}", "spec.ipAddressPools", "PoolNotFound", `spec.ipAddressPools: there is no IPAddressPool "missing"`},
		{"ipAddressPoolSelectors of no pool", "{ipAddressPoolSelectors: [{matchLabels: {is: missing}}]}", "spec.ipAddressPoolSelectors", "NoPoolSelected", "spec.ipAddressPoolSelectors: no IPAddressPool has such labels"},
	}, unmatched("", "ipAddressPoolSelectors"), unmatched("", "nodeSelectors"), unmatched("", "serviceSelectors"))
}
