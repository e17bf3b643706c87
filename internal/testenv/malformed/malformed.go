// Package malformed is a table of the mistakes that users can make, field by field, and of
// how they learn about each: the API server refuses the object, or a condition reports it.
// Tests of the schema and of the controller go through the whole table, and one test checks
// that it covers every field of every kind.
package malformed

import (
	"fmt"
	"slices"
	"strings"
)

// Case is one object, and what its user learns.
type Case struct {
	Kind, Name string
	// Spec is in YAML's flow style, and so are Annotations, which Services have.
	Spec, Annotations string
	// Refused is a part of what the API server says, with the field at its beginning;
	// "": it takes the object.
	Refused string
	// Reason is that of the condition Ready, of IPReservations Allocated, of Services
	// fairlead.dev/Allocated, and Message a part of its message; "": no test waits for one.
	Reason, Message string
	// Field is the one that is wrong: spec.addresses, or metadata.annotations[KEY];
	// "" where nothing is.
	Field string
}

// Cases are all cases. Those with a Reason need the objects of Neighbours beside them.
func Cases() []Case {
	return slices.Concat(pools(), l2Advertisements(), bgpAdvertisements(), bgpPeers(), bfdProfiles(), bgpSessions(), l2Addresses(), nodeForwardings(), communities(), reservations(), services())
}

// Neighbours are objects in YAML with which other objects come into conflict.
func Neighbours() []string {
	return []string{
		"{apiVersion: v1, kind: Node, metadata: {name: neighbour}, status: {addresses: [{type: InternalIP, address: 192.0.2.211}, {type: InternalIP, address: 203.0.113.211}]}}",
		"{apiVersion: fairlead.dev/v1beta1, kind: IPAddressPool, metadata: {name: neighbour, labels: {is: neighbour}}, spec: {addresses: [203.0.113.0/24]}}",
		"{apiVersion: fairlead.dev/v1beta1, kind: BGPPeer, metadata: {name: neighbour}, spec: {myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.254}}",
		"{apiVersion: fairlead.dev/v1beta1, kind: BGPPeer, metadata: {name: waiting}, spec: {myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.253, passive: true}}",
		"{apiVersion: fairlead.dev/v1beta1, kind: Community, metadata: {name: neighbour}, spec: {communities: [{name: neighbours, value: '1:1'}]}}",
	}
}

// spec is a case that the API server decides: what it says, or nothing when it takes the
// object.
type spec struct {
	name, spec string
	want       string
}

// told is a case that a condition tells of.
type told struct {
	name, spec, field string
	reason, message   string
}

// cases are those that the API server decides.
func cases(kind string, specs []spec) []Case {
	found := make([]Case, 0, len(specs))
	for _, s := range specs {
		found = append(found, Case{Kind: kind, Name: s.name, Spec: s.spec, Refused: s.want, Field: fieldOf(s.want)})
	}
	return found
}

// conditions are those that a condition tells of.
func conditions(kind string, all []told) []Case {
	found := make([]Case, 0, len(all))
	for _, s := range all {
		found = append(found, Case{Kind: kind, Name: s.name, Spec: s.spec, Field: s.field, Reason: s.reason, Message: s.message})
	}
	return found
}

// fieldOf is the field that an error of the API server begins with, without indices.
func fieldOf(text string) string {
	field, _, _ := strings.Cut(text, ": ")
	for {
		before, rest, indexed := strings.Cut(field, "[")
		if !indexed {
			return field
		}
		_, after, _ := strings.Cut(rest, "]")
		field = before + after
	}
}

// unmatched are the cases of a list of label selectors that the schema takes and no label
// can match. others are the rest of the spec, with a comma at the end.
func unmatched(others, field string) []told {
	name := field[strings.LastIndex(field, ".")+1:]
	in := func(selector string) string {
		text := name + ": [{}, " + selector + "]"
		for part := range strings.SplitSeq(strings.TrimSuffix(field, name), ".") {
			if part != "" {
				text = part + ": {" + text + "}"
			}
		}
		return "{" + others + text + "}"
	}
	path := "spec." + field
	return []told{
		{field + " with a key that is none", in("{matchLabels: {a b: c}}"), path, "InvalidSelector", path + "[1]: "},
		{field + " with a value that is none", in("{matchLabels: {a: b c}}"), path, "InvalidSelector", path + "[1]: "},
		{field + " with an expression of no key", in("{matchExpressions: [{key: '', operator: Exists}]}"), path, "InvalidSelector", path + "[1]: "},
		{field + " with an expression of no value", in("{matchExpressions: [{key: a, operator: In, values: [b c]}]}"), path, "InvalidSelector", path + "[1]: "},
	}
}

// refused are texts in a field, or in its list if it ends in [], that the API server refuses, and why.
func refused(field, why string, texts ...string) []spec {
	name, list := strings.CutSuffix(field, "[]")
	found := make([]spec, 0, len(texts))
	for _, text := range texts {
		value, at := "'"+text+"'", "spec."+name
		if list {
			value, at = "["+value+"]", at+"[0]"
		}
		found = append(found, spec{name + " " + text, "{" + name + ": " + value + "}", fmt.Sprintf("%s: Invalid value: %q: %s", at, text, why)})
	}
	return found
}

// limits are the numbers next to those that a field may have.
func limits(field string, least, most int64) []spec {
	beyond := func(number int64, comparison string, limit int64) spec {
		return spec{
			fmt.Sprint(field, " ", number), fmt.Sprintf("{%s: %d}", field, number),
			fmt.Sprintf("spec.%[1]s: Invalid value: %[2]d: spec.%[1]s in body should be %[3]s than or equal to %[4]d", field, number, comparison, limit),
		}
	}
	return []spec{beyond(least-1, "greater", least), beyond(most+1, "less", most)}
}

// names are the cases of a list of object names.
func names(field string) []spec {
	at := "spec." + field
	return append(refused(field+"[]", "must be the name of an object", "Router", "a..b", "a-"), []spec{
		{field + " good", "{" + field + ": [a, a-1, a.b, '1']}", ""},
		{field + " empty", "{" + field + ": [a, '']}", at + "[1]: Invalid value: \"\": must be the name of an object"},
		{field + " twice", "{" + field + ": [a, b, a]}", at + "[2]: Duplicate value: \"a\""},
		{field + " too long", "{" + field + ": [" + strings.Repeat("a", 254) + "]}", at + "[0]: Too long: may not be more than 253 bytes"},
	}...)
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
