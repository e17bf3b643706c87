package malformed

import (
	"slices"
	"strings"
)

// aPeer is a BGPPeer that is in order, and peerWith adds fields to it.
const aPeer = "myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.1"

func peerWith(fields string) string { return "{" + aPeer + ", " + fields + "}" }

// bgpPeers are the cases of BGPPeer.
func bgpPeers() []Case {
	specs := slices.Concat(peersWhole(), peerAddresses(), peerTimes(), prefixed(aPeer, selectors("nodeSelectors")),
		nested(aPeer, "passwordSecret", refused("name", "must be the name of a Secret", "", "ns/secret")))
	return append(cases("BGPPeer", specs), conditions("BGPPeer", slices.Concat([]told{
		{"passwordSecret missing", peerWith("passwordSecret: {name: missing}"), "spec.passwordSecret.name", "SecretMissing", `spec.passwordSecret: there is no Secret "missing"`},
		{"passive as another peer", "{myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.253, passive: true, sourceAddress: 192.0.2.211}", "spec.passive", "PeerDuplicate", `BGPPeer "waiting" waits for connections of 192.0.2.253 on node neighbour as well`},
		{"bfdProfile missing", peerWith("bfdProfile: missing"), "spec.bfdProfile", "ProfileNotFound", `spec.bfdProfile: there is no BFDProfile "missing"`},
		{"peerAddress of another peer", "{myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.254}", "spec.peerAddress", "PeerDuplicate", `BGPPeer "neighbour" is the same router 192.0.2.254:179 on node neighbour`},
	}, unmatched(aPeer+", ", "nodeSelectors")))...)
}

// peersWhole are of which fields go together.
func peersWhole() []spec {
	return []spec{
		{"the least", "{" + aPeer + "}", ""},
		{"all fields", peerWith("peerPort: 1790, sourceAddress: 192.0.2.11, routerID: 192.0.2.11, holdTime: 9s, keepaliveTime: 3s, connectTime: 5s, passwordSecret: {name: router-a}, ebgpMultiHop: true, localASN: 64501, ttlSecurity: false, dualStackAddressFamily: false, password: '', vrf: '', bfdProfile: fast, enableGracefulRestart: false, nodeSelectors: [{matchLabels: {rack: r1}}]"), ""},
		{"no myASN", "{peerASN: 64512, peerAddress: 192.0.2.1}", "spec.myASN: Required value"},
		{"no peerASN", "{myASN: 64500, peerAddress: 192.0.2.1}", "spec.peerASN: Invalid value: give one of peerASN and dynamicASN"},
		{"peerASN and dynamicASN", peerWith("dynamicASN: external"), "spec.peerASN: Invalid value: give one of peerASN and dynamicASN"},
		{"dynamicASN external", "{myASN: 64500, dynamicASN: external, peerAddress: 192.0.2.1, ebgpMultiHop: true}", ""},
		{"dynamicASN internal", "{myASN: 64500, dynamicASN: internal, peerAddress: 192.0.2.1}", ""},
		{"dynamicASN of another kind", "{myASN: 64500, dynamicASN: any, peerAddress: 192.0.2.1}", "spec.dynamicASN: Unsupported value: \"any\": supported values: \"internal\", \"external\""},
		{"dynamicASN internal with ebgpMultiHop", "{myASN: 64500, dynamicASN: internal, peerAddress: 192.0.2.1, ebgpMultiHop: true}", "spec.ebgpMultiHop: Invalid value: ebgpMultiHop is for eBGP only"},
		{"localASN as the router's with ebgpMultiHop", peerWith("localASN: 64512, ebgpMultiHop: true"), "spec.ebgpMultiHop: Invalid value: ebgpMultiHop is for eBGP only"},
		{"localASN other than the router's with ebgpMultiHop", "{myASN: 64512, localASN: 64500, peerASN: 64512, peerAddress: 192.0.2.1, ebgpMultiHop: true}", ""},
		{"localASN reserved", peerWith("localASN: 65535"), "spec.localASN: Invalid value: 65535: localASN must be the number of a real autonomous system"},
		{"ttlSecurity", peerWith("ttlSecurity: true, dualStackAddressFamily: false"), ""},
		{"ttlSecurity with ebgpMultiHop", peerWith("ttlSecurity: true, ebgpMultiHop: true"), "spec.ttlSecurity: Invalid value: ttlSecurity is for routers on a network of the node"},
		{"a password in the open", peerWith("password: hunter2"), ""},
		{"a password that is too long", peerWith("password: " + strings.Repeat("hunter2!", 11)), "spec.password: Too long: may not be more than 80 bytes"},
		{"password and passwordSecret", peerWith("password: hunter2, passwordSecret: {name: router-a}"), "spec.password: Invalid value: give one of password and passwordSecret"},
		{"no password", peerWith("password: '', vrf: ''"), ""},
		{"disableMP", peerWith("disableMP: true"), "spec.disableMP: Invalid value: true: write dualStackAddressFamily: false"},
		{"disableMP false", peerWith("disableMP: false"), ""},
		{"a VRF", peerWith("vrf: red"), "spec.vrf: Invalid value: \"red\": there are no sessions in VRFs"},
		{"no peerAddress", "{myASN: 64500, peerASN: 64512}", "spec.peerAddress: Invalid value: give one of peerAddress and interface"},
		{"interface", "{myASN: 64500, dynamicASN: external, interface: eth0.100, ttlSecurity: true, passwordSecret: {name: router-a}, bfdProfile: fast}", ""},
		{"interface and peerAddress", peerWith("interface: eth0"), "spec.peerAddress: Invalid value: give one of peerAddress and interface"},
		{"interface with a bad name", "{myASN: 64500, peerASN: 64512, interface: 'eth0:1'}", "spec.interface: Invalid value: \"eth0:1\": must be the name of a network interface"},
		{"interface empty", "{myASN: 64500, peerASN: 64512, interface: ''}", "spec.interface: Invalid value: \"\": must be the name of a network interface"},
		{"interface with sourceAddress", "{myASN: 64500, peerASN: 64512, interface: eth0, sourceAddress: 192.0.2.11}", "spec.sourceAddress: Invalid value: an unnumbered session comes from the link-local address"},
		{"passive", peerWith("passive: true, sourceAddress: 192.0.2.11"), ""},
		{"passive with the defaults", peerWith("passive: true, peerPort: 179, connectTime: 10s"), ""},
		{"passive with peerPort", peerWith("passive: true, peerPort: 1790"), "spec.peerPort: Invalid value: has no effect with passive, where the router connects to a port of the node"},
		{"passive with connectTime", peerWith("passive: true, connectTime: 5s"), "spec.connectTime: Invalid value: has no effect with passive, where the router connects"},
		{"passive false with both", peerWith("passive: false, peerPort: 1790, connectTime: 5s"), ""},
		{"interface with passive", "{myASN: 64500, peerASN: 64512, interface: eth0, passive: true}", "spec.passive: Invalid value: an unnumbered session is begun by the node"},
		{"interface with ebgpMultiHop", "{myASN: 64500, peerASN: 64512, interface: eth0, ebgpMultiHop: true}", "spec.ebgpMultiHop: Invalid value: the router at the other end of an interface is one hop away"},
		{"IPv6", "{myASN: 64500, peerASN: 64500, peerAddress: '2001:db8::1', sourceAddress: '2001:db8::2'}", ""},
		{"ASNs of 32 bits", "{myASN: 4200000000, peerASN: 4294967294, peerAddress: 192.0.2.1}", ""},
		{"a daemon on the node", "{myASN: 64500, peerASN: 64512, peerAddress: 127.0.0.1}", ""},
		{"IPv4 link-local", "{myASN: 64500, peerASN: 64512, peerAddress: 169.254.1.1}", ""},
		{"ebgpMultiHop with iBGP", "{myASN: 64500, peerASN: 64500, peerAddress: 192.0.2.1, ebgpMultiHop: true}", "spec.ebgpMultiHop: Invalid value: ebgpMultiHop is for eBGP only"},
		{"ebgpMultiHop false with iBGP", "{myASN: 64500, peerASN: 64500, peerAddress: 192.0.2.1, ebgpMultiHop: false}", ""},
		{"bfdProfile with a bad name", peerWith("bfdProfile: Fast"), "spec.bfdProfile: Invalid value: \"Fast\": must be the name of a BFDProfile"},
		{"myASN 0", "{myASN: 0, peerASN: 64512, peerAddress: 192.0.2.1}", "spec.myASN: Invalid value: 0: spec.myASN in body should be greater than or equal to 1"},
		{"myASN AS_TRANS", "{myASN: 23456, peerASN: 64512, peerAddress: 192.0.2.1}", "spec.myASN: Invalid value: 23456: myASN must be the number of a real autonomous system"},
		{"peerASN last of 16 bits", "{myASN: 64500, peerASN: 65535, peerAddress: 192.0.2.1}", "spec.peerASN: Invalid value: 65535: peerASN must be the number of a real autonomous system"},
		{"peerASN last of 32 bits", "{myASN: 64500, peerASN: 4294967295, peerAddress: 192.0.2.1}", "spec.peerASN: Invalid value: 4294967295: spec.peerASN in body should be less than or equal to 4294967294"},
		{"peerASN as text", "{myASN: 64500, peerASN: '64512', peerAddress: 192.0.2.1}", "spec.peerASN: Invalid value: \"string\": spec.peerASN in body must be of type integer"},
		{"passwordSecret without name", peerWith("passwordSecret: {}"), "spec.passwordSecret.name: Required value"},
	}
}

// peerAddresses are the cases of the two ends of a session.
func peerAddresses() []spec {
	return slices.Concat([]spec{
		{"sourceAddress of the other family", peerWith("sourceAddress: '2001:db8::1'"), "spec.sourceAddress: Invalid value: sourceAddress must be of the same family as peerAddress"},
	}, prefixed("myASN: 64500, peerASN: 64512", refused("peerAddress", "peerAddress must be the unicast address of a router",
		"router", "192.0.2.1/24", "::ffff:192.0.2.1", "fe80::1%eth0", "fe80::1", "0.0.0.0", "224.0.0.5", "",
	)), prefixed(aPeer, slices.Concat(
		limits("peerPort", 1, 65535),
		refused("sourceAddress", "sourceAddress must be a unicast address of the node", "eth0"),
		refused("routerID", "routerID must be written as an IPv4 address", "2001:db8::1", "0.0.0.0", "7"),
	)))
}

// peerTimes are of timers.
func peerTimes() []spec {
	return slices.Concat([]spec{
		{"holdTime in minutes", peerWith("holdTime: 1m30s, keepaliveTime: 1m29s"), ""},
		{"holdTime the longest", peerWith("holdTime: 65535s"), ""},
		{"holdTime a number", peerWith("holdTime: 90"), "spec.holdTime: Invalid value: \"integer\": spec.holdTime in body must be of type string"},
		{"keepaliveTime as long as holdTime", peerWith("holdTime: 9s, keepaliveTime: 9s"), "spec.keepaliveTime: Invalid value: keepaliveTime must be at least 1s and less than holdTime"},
		{"keepaliveTime longer than the default holdTime", peerWith("keepaliveTime: 90s"), "spec.keepaliveTime: Invalid value: keepaliveTime must be at least 1s and less than holdTime"},
		{"keepaliveTime 0", peerWith("keepaliveTime: 0s"), "spec.keepaliveTime: Invalid value: keepaliveTime must be at least 1s and less than holdTime"},
	}, prefixed(aPeer, slices.Concat(
		refused("holdTime", "holdTime must be 3s to 65535s", "0s", "2s", "65536s", "3500ms", "90", "-9s", "", "1d"),
		refused("keepaliveTime", "keepaliveTime must be whole seconds", "soon"),
		refused("connectTime", "connectTime must be 1s to 65535s", "0s", "19h"),
	)))
}

// PeerFieldsOfMetalLB are the fields of the spec of its BGPPeer (v1beta2 of v0.16.1). None
// may be passed over in silence, wherever one writes it.
func PeerFieldsOfMetalLB() []string {
	return []string{
		"bfdProfile", "connectTime", "disableMP", "dualStackAddressFamily", "dynamicASN", "ebgpMultiHop",
		"enableGracefulRestart", "holdTime", "interface", "keepaliveTime", "localASN", "myASN", "nodeSelectors",
		"password", "passwordSecret", "peerASN", "peerAddress", "peerPort", "routerID", "sourceAddress", "vrf",
	}
}
