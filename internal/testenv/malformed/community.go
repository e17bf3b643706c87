package malformed

import "strings"

// communities are the cases of Community.
func communities() []Case {
	const value, name = "spec.communities[0].value: Invalid value: %q: must be asn:value", "spec.communities[0].name: Invalid value: %q: must begin with a letter"
	one := func(fields string) string { return "{communities: [{" + fields + "}]}" }
	said := func(what, of string) string { return strings.ReplaceAll(what, "%q", `"`+of+`"`) }
	return append(cases("Community", []spec{
		{"empty", "{}", ""},
		{"names of both kinds", "{communities: [{name: vpn-only, value: '1234:1'}, {name: NO_ADVERTISE, value: '65535:65282'}, {name: far, value: 'large:4294967295:456:789'}]}", ""},
		{"no value", one("name: a"), "spec.communities[0].value: Required value"},
		{"no name", one("value: '1:1'"), "spec.communities[0].name: Required value"},
		{"name twice", "{communities: [{name: a, value: '1:1'}, {name: a, value: '1:2'}]}", "spec.communities[1]: Duplicate value"},
		{"name of a number", one("name: '100', value: '1:1'"), said(name, "100")},
		{"name with a colon", one("name: 'a:b', value: '1:1'"), said(name, "a:b")},
		{"name that is well known", one("name: no-export, value: '65535:65281'"), "spec.communities[0].name: Invalid value: \"no-export\": is the well-known name"},
		{"name too long", one("name: " + strings.Repeat("a", 64) + ", value: '1:1'"), "spec.communities[0].name: Too long: may not be more than 63 bytes"},
		{"value of one part", one("name: a, value: '100'"), said(value, "100")},
		{"value with an ASN of 32 bits", one("name: a, value: '65536:1'"), said(value, "65536:1")},
		{"large value of two parts", one("name: a, value: 'large:1:2'"), said(value, "large:1:2")},
		{"value that is a name", one("name: a, value: b"), said(value, "b")},
	}), conditions("Community", []told{
		{"a name that an older one has", "{communities: [{name: neighbours, value: '1:2'}]}", "spec.communities", "CommunityDuplicate", `the name "neighbours" is that of Community "neighbour", which is older`},
	})...)
}
