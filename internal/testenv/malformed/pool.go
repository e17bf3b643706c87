package malformed

import (
	"fmt"
	"slices"
	"strings"
)

// pools are the cases of IPAddressPool.
func pools() []Case {
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("192.0.2.%d/32", i))
	}
	return append(cases("IPAddressPool", append([]spec{
		{"both families and forms", "{addresses: [192.0.2.0/24, '2001:db8::/64', 198.51.100.7-198.51.100.9, '2001:db8:1::1-2001:db8:1::ffff']}", ""},
		{"all fields", "{addresses: [192.0.2.0/24], autoAssign: false, avoidBuggyIPs: true, disabled: true, priority: 10, maxPerNamespace: 4, coolDown: 10m, serviceAllocation: {namespaces: [shop], namespaceSelectors: [{matchLabels: {a: b}}], serviceSelectors: [{}]}}", ""},
		{"MetalLB's priority", "{addresses: [192.0.2.0/24], serviceAllocation: {priority: 10}}", ""},
		{"onPoolChange Renumber", "{addresses: [192.0.2.0/24], onPoolChange: Renumber}", ""},
		{"onPoolChange unknown", "{addresses: [192.0.2.0/24], onPoolChange: Drop}", "spec.onPoolChange: Unsupported value: \"Drop\": supported values: \"Keep\", \"Renumber\""},
		{"two priorities", "{addresses: [192.0.2.0/24], priority: 1, serviceAllocation: {priority: 10}}", "spec.priority: Invalid value: give the priority once"},
		{"priority negative", "{addresses: [192.0.2.0/24], priority: -1}", "spec.priority: Invalid value: -1: spec.priority in body should be greater than or equal to 0"},
		{"MetalLB's priority negative", "{addresses: [192.0.2.0/24], serviceAllocation: {priority: -1}}", "spec.serviceAllocation.priority: Invalid value: -1"},
		{"quota of none", "{addresses: [192.0.2.0/24], maxPerNamespace: 0}", "spec.maxPerNamespace: Invalid value: 0: spec.maxPerNamespace in body should be greater than or equal to 1"},
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
	}, slices.Concat(
		nested("addresses: [192.0.2.0/24]", "serviceAllocation", slices.Concat(selectors("namespaceSelectors"), selectors("serviceSelectors"))),
		prefixed("addresses: [192.0.2.0/24]", refused("coolDown", "coolDown must be 1s to 168h", "0s", "169h", "1.5m")),
		refused("addresses[]", "must hold unicast addresses that other machines can reach", "127.0.0.0/28", "::1/128", "224.0.0.0/24", "ff02::/16", "0.0.0.0/0",
			"240.0.0.1-255.255.255.255", "fe80::/64"),
	)...)), conditions("IPAddressPool", slices.Concat(
		unmatched("addresses: [192.0.2.0/28], ", "serviceAllocation.namespaceSelectors"),
		unmatched("addresses: [192.0.2.0/28], ", "serviceAllocation.serviceSelectors"),
		claims(),
	))...)
}

// claims are pools of addresses that no pool should have. The rule is in
// docs/guide/pools.md.
func claims() []told {
	var all []told
	for _, c := range []struct{ what, addresses, reason, message string }{
		{"the address of a node", "192.0.2.208/28", "AddressesInUse", "192.0.2.211, which is the address of a node"},
		{"the range of ClusterIPs", "10.0.0.0/8", "AddressesInUse", "10.96.0.0/16, which ClusterIPs are from"},
		{"the range of ClusterIPs of IPv6", "'fd00:10:96::/120'", "AddressesInUse", "fd00:10:96::/112, which ClusterIPs are from"},
		{"those of an older pool", "203.0.113.128/25", "PoolOverlap", "203.0.113.128-203.0.113.255 is in the older IPAddressPool \"neighbour\" too"},
		{"loopback among others", "126.0.0.0-128.0.0.0", "UnusableAddresses", "127.0.0.0/8"},
		{"multicast among others", "223.0.0.0-240.0.0.1", "UnusableAddresses", "224.0.0.0/4"},
		{"broadcast among others", "255.255.255.0/24", "UnusableAddresses", "255.255.255.255/32"},
		{"link-local among others", "'fe00::-fec0::'", "UnusableAddresses", "fe80::/10"},
		{"IPv6 multicast among others", "'fe00::/7'", "UnusableAddresses", "ff00::/8"},
		{"the first and the last address of a network", "192.0.2.0/30", "Ready", "valid"},
		{"IPv4 link-local", "169.254.7.0/24", "Ready", "valid"},
	} {
		all = append(all, told{c.what, "{addresses: [" + c.addresses + "]}", "spec.addresses", c.reason, c.message})
	}
	return all
}
