package malformed

import (
	"fmt"
	"strings"
)

// reservations are the cases of IPReservation.
func reservations() []Case {
	const (
		one       = "spec: Invalid value: give either addresses, to hold these, or count, to hold any"
		malformed = "must be an IP address such as 192.0.2.10"
		shortest  = "must be written in the shortest form"
		unusable  = "must be a unicast address that other machines can reach"
	)
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("192.0.2.%d", i))
	}
	at := func(text, why string) spec {
		return spec{"address " + text, "{addresses: ['" + text + "']}", "spec.addresses[0]: Invalid value: \"" + text + "\": " + why}
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
		{"count of none", "{count: 0}", "spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1"},
		{"count too great", "{count: 65}", "spec.count: Invalid value: 65: spec.count in body should be less than or equal to 64"},
		{"count as text", "{count: '1'}", "spec.count: Invalid value: \"string\": spec.count in body must be of type integer"},
		{"no families", "{count: 1, families: []}", "spec.families: Invalid value: 0: spec.families in body should have at least 1 items"},
		{"an unknown family", "{count: 1, families: [ipv4]}", "spec.families[0]: Unsupported value: \"ipv4\": supported values: \"IPv4\", \"IPv6\""},
		{"a family twice", "{count: 1, families: [IPv4, IPv4]}", "spec.families[1]: Duplicate value: \"IPv4\""},
		{"pool in capitals", "{count: 1, pool: Public}", "spec.pool: Invalid value: \"Public\": must be the name of an IPAddressPool"},
	},
		at("", malformed), at("web", malformed), at("192.0.2.1/32", malformed), at("192.0.2.1-192.0.2.9", malformed), at("192.0.2.01", malformed),
		at("::ffff:192.0.2.1", malformed), at("fe80::1%eth0", malformed), at(" 192.0.2.1", malformed),
		at("2001:DB8::1", shortest), at("2001:db8:0::1", shortest),
		at("127.0.0.1", unusable), at("0.0.0.0", unusable), at("::", unusable), at("224.0.0.5", unusable), at("fe80::1", unusable),
		at("255.255.255.255", unusable), at("ff02::1", unusable), at("::1", unusable),
	)), conditions("IPReservation", []told{
		{"an address of no pool", "{addresses: [198.51.100.1]}", "spec.addresses", "RequestOutsidePools", "198.51.100.1"},
		{"an address of another pool", "{addresses: [198.51.100.1], pool: neighbour}", "spec.addresses", "RequestOutsidePools", "\"neighbour\""},
		{"the address of a node", "{addresses: [203.0.113.211]}", "spec.addresses", "RequestUnusable", "203.0.113.211 is the address of a node"},
		{"of the range of ClusterIPs", "{addresses: [10.96.0.77]}", "spec.addresses", "RequestUnusable", "10.96.0.77 is of 10.96.0.0/16, which ClusterIPs are from"},
		{"a pool that is missing", "{count: 1, pool: missing}", "spec.pool", "PoolNotFound", "\"missing\" does not exist"},
		{"more than the pool has", "{count: 1, families: [IPv6], pool: neighbour}", "spec.families", "NoPool", "\"neighbour\" has no IPv6 addresses"},
	})...)
}
