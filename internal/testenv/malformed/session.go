package malformed

// bgpSessions are the cases of BGPSession, which only speakers write.
func bgpSessions() []Case {
	return cases("BGPSession", []spec{
		{"all fields", "{node: node1.example.org, peer: tor}", ""},
		{"no node", "{peer: tor}", "spec.node: Required value"},
		{"no peer", "{node: node1}", "spec.peer: Required value"},
		{"node of an address and a port", "{node: '192.0.2.1:179', peer: tor}", "spec.node: Invalid value: \"192.0.2.1:179\": must be the name of a Node"},
		{"peer in capitals", "{node: node1, peer: TOR}", "spec.peer: Invalid value: \"TOR\": must be the name of a BGPPeer"},
	})
}

// l2Addresses are the cases of L2Address, which only speakers write.
func l2Addresses() []Case {
	return cases("L2Address", []spec{
		{"all fields", "{address: 192.0.2.10}", ""},
		{"IPv6", "{address: '2001:db8::10'}", ""},
		{"no address", "{}", "spec.address: Required value"},
		{"a prefix", "{address: 192.0.2.0/24}", "spec.address: Invalid value: \"192.0.2.0/24\": must be an IPv4 or IPv6 address"},
	})
}

// nodeForwardings are the cases of NodeForwarding, which only speakers write.
func nodeForwardings() []Case {
	return cases("NodeForwarding", []spec{
		{"all fields", "{node: x}", ""},
		{"no node", "{}", "spec.node: Required value"},
		{"of another node", "{node: other}", "a NodeForwarding has the name of its node"},
	})
}
