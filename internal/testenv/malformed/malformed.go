// Package malformed is a table of the mistakes that users can make, field by field, and of
// how they learn about each: the API server refuses the object, or a condition reports it.
// Tests of the schema and of the controller go through the whole table, and one test checks
// that it covers every field of every kind. The cases are in a file of each kind.
package malformed

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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

//go:embed *.yaml
var files embed.FS

// lists is the file with the cases of lists that several kinds have.
const lists = "lists.yaml"

// table is the file of one kind.
type table struct {
	Kind string
	// Base is a spec that is in order.
	Base map[string]any
	// Lists are fields, with dots between their parts, and what they are lists of, in lists.
	Lists map[string]string
	// Limits are the least and the greatest number that a field may have.
	Limits map[string][2]int64
	// Texts are texts in a field, or in its list if it ends in [], that the API server refuses, and why.
	Texts []struct {
		Field, Refused string
		Texts          []string
	}
	Cases []entry
}

// entry is one case, as Case has it.
type entry struct {
	Name                            string
	Spec                            map[string]any
	More                            map[string]any // in place of Spec: what is added to the Base
	Value                           any            // in place of Spec, in lists: the whole of the field
	Refused, Field, Reason, Message string
}

// Cases returns all cases. Those with a Reason need the objects of Neighbours beside them.
func Cases(tb testing.TB) []Case {
	tb.Helper()
	shapes := map[string][]entry{}
	read(tb, lists, &shapes)
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	all := services()
	for _, path := range slices.DeleteFunc(paths, func(path string) bool { return path == lists }) {
		var t table
		read(tb, path, &t)
		for _, e := range t.all(shapes) {
			spec, err := json.Marshal(e.Spec)
			if err != nil {
				tb.Fatal(err)
			}
			if e.Field == "" {
				e.Field = fieldOf(e.Refused)
			}
			all = append(all, Case{Kind: t.Kind, Name: e.Name, Spec: string(spec), Refused: e.Refused, Reason: e.Reason, Message: e.Message, Field: e.Field})
		}
	}
	return all
}

func read(tb testing.TB, path string, into any) {
	tb.Helper()
	text, err := files.ReadFile(path)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
}

// all returns the cases of the file, each with its Spec.
func (t *table) all(shapes map[string][]entry) []entry {
	for i, e := range t.Cases {
		if e.Spec == nil {
			t.Cases[i].Spec = t.with(e.More)
		}
	}
	for field, shape := range t.Lists {
		for _, e := range shapes[shape] {
			at := "spec." + field
			e.Name, e.Spec, e.Field = field+" "+e.Name, t.with(nested(field, e.Value)), at
			switch {
			case e.Refused != "":
				e.Refused = at + e.Refused
			case e.Message != "":
				e.Message = at + e.Message
			default:
				e.Field = ""
			}
			t.Cases = append(t.Cases, e)
		}
	}
	for field, limits := range t.Limits {
		t.beyond(field, limits[0]-1, "greater", limits[0])
		t.beyond(field, limits[1]+1, "less", limits[1])
	}
	for _, wrong := range t.Texts {
		for _, text := range wrong.Texts {
			var value any = text
			field, list := strings.CutSuffix(wrong.Field, "[]")
			at := "spec." + field
			if list {
				value, at = []any{text}, at+"[0]"
			}
			t.refused(field, text, value, fmt.Sprintf("%s: Invalid value: %q: %s", at, text, wrong.Refused))
		}
	}
	return t.Cases
}

// beyond adds the case of a number that is next to a limit.
func (t *table) beyond(field string, number int64, comparison string, limit int64) {
	t.refused(field, fmt.Sprint(number), number,
		fmt.Sprintf("spec.%[1]s: Invalid value: %[2]d: spec.%[1]s in body should be %[3]s than or equal to %[4]d", field, number, comparison, limit))
}

func (t *table) refused(field, name string, value any, why string) {
	t.Cases = append(t.Cases, entry{Name: field + " " + name, Spec: t.with(nested(field, value)), Refused: why})
}

// with returns a spec that is in order but for some fields.
func (t *table) with(fields map[string]any) map[string]any {
	spec := map[string]any{}
	maps.Copy(spec, t.Base)
	maps.Copy(spec, fields)
	return spec
}

// nested returns a field whose name has dots between its parts.
func nested(field string, value any) map[string]any {
	outer, inner, found := strings.Cut(field, ".")
	if found {
		value = nested(inner, value)
	}
	return map[string]any{outer: value}
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

// PeerFieldsOfMetalLB are the fields of the spec of its BGPPeer (v1beta2 of v0.16.1). None
// may be passed over in silence, wherever one writes it.
func PeerFieldsOfMetalLB() []string {
	return []string{
		"bfdProfile", "connectTime", "disableMP", "dualStackAddressFamily", "dynamicASN", "ebgpMultiHop",
		"enableGracefulRestart", "holdTime", "interface", "keepaliveTime", "localASN", "myASN", "nodeSelectors",
		"password", "passwordSecret", "peerASN", "peerAddress", "peerPort", "routerID", "sourceAddress", "vrf",
	}
}
