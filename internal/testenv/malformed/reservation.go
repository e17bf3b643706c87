package malformed

import (
	"fmt"
	"slices"
	"strings"
)

// reservations are the cases of IPReservation.
func reservations() []Case {
	const one = "spec: Invalid value: give either addresses, to hold these, or count, to hold any"
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("192.0.2.%d", i))
	}
	return append(cases("IPReservation", append([]spec{
		{"addresses", "{addresses: [192.0.2.1, '2001:db8::a', 169.254.7.1], pool: public}", ""},
		{"count", "{count: 64, families: [IPv4, IPv6], pool: lan.a-1}", ""},
		{"only IPv6", "{count: 1, families: [IPv6]}", ""},
		{"nothing", "{}", one},
		{"both", "{addresses: [192.0.2.1], count: 1}", one},
		{"no addresses", "{addresses: []}", "spec.addresses: Invalid value: 0: spec.addresses in body should have at least 1 items"},
		{"too many addresses", "{addresses: [" + strings.Join(many, ", ") + "]}", "spec.addresses: Too many: 65: must have at most 64 items"},
		{"an address twice", "{addresses: [192.0.2.1, 192.0.2.1]}", "spec.addresses[1]: Duplicate value: \"192.0.2.1\""},
		{"an address and families", "{addresses: [192.0.2.1], families: [IPv4]}", "spec.families: Invalid value: families go with count"},
		{"count as text", "{count: '1'}", "spec.count: Invalid value: \"string\": spec.count in body must be of type integer"},
		{"no families", "{count: 1, families: []}", "spec.families: Invalid value: 0: spec.families in body should have at least 1 items"},
		{"an unknown family", "{count: 1, families: [ipv4]}", "spec.families[0]: Unsupported value: \"ipv4\": supported values: \"IPv4\", \"IPv6\""},
		{"a family twice", "{count: 1, families: [IPv4, IPv4]}", "spec.families[1]: Duplicate value: \"IPv4\""},
		{"pool in capitals", "{count: 1, pool: Public}", "spec.pool: Invalid value: \"Public\": must be the name of an IPAddressPool"},
	}, slices.Concat(
		limits("count", 1, 64),
		refused("addresses[]", "must be an IP address such as 192.0.2.10", "", "web", "192.0.2.1/32", "192.0.2.1-192.0.2.9", "192.0.2.01", "::ffff:192.0.2.1",
			"fe80::1%eth0", " 192.0.2.1"),
		refused("addresses[]", "must be written in the shortest form", "2001:DB8::1", "2001:db8:0::1"),
		refused("addresses[]", "must be a unicast address that other machines can reach", "127.0.0.1", "0.0.0.0", "::", "224.0.0.5", "fe80::1",
			"255.255.255.255", "ff02::1", "::1"),
	)...)), conditions("IPReservation", []told{
		{"an address of no pool", "{addresses: [198.51.100.1]}", "spec.addresses", "RequestOutsidePools", "198.51.100.1"},
		{"an address of another pool", "{addresses: [198.51.100.1], pool: neighbour}", "spec.addresses", "RequestOutsidePools", "\"neighbour\""},
		{"the address of a node", "{addresses: [203.0.113.211]}", "spec.addresses", "RequestUnusable", "203.0.113.211 is the address of a node"},
		{"of the range of ClusterIPs", "{addresses: [10.96.0.77]}", "spec.addresses", "RequestUnusable", "10.96.0.77 is of 10.96.0.0/16, which ClusterIPs are from"},
		{"a pool that is missing", "{count: 1, pool: missing}", "spec.pool", "PoolNotFound", "\"missing\" does not exist"},
		{"more than the pool has", "{count: 1, families: [IPv6], pool: neighbour}", "spec.families", "NoPool", "\"neighbour\" has no IPv6 addresses"},
	})...)
}
