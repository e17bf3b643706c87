package metallb_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/metallb"
)

// value draws what may stand in a field: good, odd and bad.
func value(texts ...any) *rapid.Generator[any] { return rapid.SampledFrom(texts) }

func lists(of *rapid.Generator[any]) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(of, 0, 4).Draw(t, "list") })
}

// fields are the fields of each kind with what to draw for them.
func fields() map[string]map[string]*rapid.Generator[any] {
	labelSets := value(map[string]any{}, map[string]any{"matchLabels": map[string]any{"a": "b"}},
		map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "In", "values": []any{"b"}}}},
		map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Near"}}},
		map[string]any{"matchLabels": map[string]any{"a b": "c"}})
	names := value("a", "b", "a.b", "A", "", "-")
	numbers := value(0, 1, -1, 24, 32, 128, 23456, 64500, 64512, 65535, 65536, 1<<32-1, 1<<32, "x", nil, true)
	times := value("0s", "1s", "3s", "90s", "1500ms", "65535s", "65536s", "-1s", "soon", nil, 3)
	flags := value(true, false, nil, "no")
	hosts := value("192.0.2.1", "2001:db8::1", "fe80::1", "fe80::1%eth0", "127.0.0.1", "0.0.0.0", "::ffff:192.0.2.1", "", nil, "x")
	return map[string]map[string]*rapid.Generator[any]{
		"IPAddressPool": {
			"addresses": lists(value("192.0.2.0/24", "192.0.2.7/24", "198.51.100.1 - 198.51.100.9", "2001:db8::/64", "2001:db8::-2001:db8::ff",
				"2001:db8::1.2.3.4/128", "240.0.0.0/4", "255.255.255.255/32", "fe80::/10", "::/0", "0.0.0.0/0", "x", "64:ff9b::192.0.2.1-64:ff9b::192.0.2.9")),
			"autoAssign": flags, "avoidBuggyIPs": flags,
			"serviceAllocation": rapid.Custom(func(t *rapid.T) any {
				return map[string]any{
					"priority": numbers.Draw(t, "priority"), "namespaces": lists(names).Draw(t, "namespaces"),
					"namespaceSelectors": lists(labelSets).Draw(t, "namespaceSelectors"), "serviceSelectors": lists(labelSets).Draw(t, "serviceSelectors"),
				}
			}),
		},
		"L2Advertisement": {
			"ipAddressPools": lists(names), "ipAddressPoolSelectors": lists(labelSets), "nodeSelectors": lists(labelSets), "serviceSelectors": lists(labelSets),
			"interfaces": lists(value("eth0", "eth0:1", "a b", "..", "bond0.100", "abcdefghijklmnop")), "preferredNodeSelectors": lists(rapid.Custom(func(t *rapid.T) any {
				return map[string]any{"weight": numbers.Draw(t, "weight"), "preference": labelSets.Draw(t, "preference")}
			})),
		},
		"BGPAdvertisement": {
			"ipAddressPools": lists(names), "ipAddressPoolSelectors": lists(labelSets), "nodeSelectors": lists(labelSets), "serviceSelectors": lists(labelSets),
			"peers": lists(names), "localPref": numbers, "aggregationLength": numbers, "aggregationLengthV6": numbers,
			"communities": lists(value("64500:100", "65535:65281", "65536:1", "large:1:2:3", "x", "+1:1", "1:000001")),
		},
		"BGPPeer": {
			"myASN": numbers, "peerASN": numbers, "dynamicASN": value("", "internal", "external", "x"), "localASN": numbers, "peerAddress": hosts,
			"interface": value("", "eth0", "eth0:1"), "sourceAddress": hosts, "peerPort": numbers, "holdTime": times, "keepaliveTime": times, "connectTime": times,
			"routerID": hosts, "nodeSelectors": lists(labelSets), "password": value("", "hunter2"), "passwordSecret": value(nil, map[string]any{"name": "a"}, map[string]any{"name": "A"}),
			"bfdProfile": value("", "fast"), "enableGracefulRestart": flags, "ebgpMultiHop": flags, "vrf": value("", "red"), "disableMP": flags,
			"dualStackAddressFamily": flags, "ofTheFuture": value(1, "x"),
		},
	}
}

// usual is a spec that is admitted, of which a property changes a few fields.
var usual = map[string]map[string]any{
	"IPAddressPool":    {"addresses": []any{"192.0.2.0/24"}},
	"L2Advertisement":  {},
	"BGPAdvertisement": {},
	"BGPPeer":          {"myASN": 64500, "peerASN": 64512, "peerAddress": "192.0.2.1"},
}

// TestWhatIsPrintedIsAdmitted draws objects with a few odd fields. What is printed is
// admitted, each of its fields is printed or told of, and no password shows.
func TestWhatIsPrintedIsAdmitted(t *testing.T) {
	t.Parallel()
	kinds, fields := admissions(t), fields()
	rapid.Check(t, func(r *rapid.T) {
		kind := rapid.SampledFrom(slices.Sorted(maps.Keys(fields))).Draw(r, "kind")
		spec := maps.Clone(usual[kind])
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(fields[kind]))), 0, 4, rapid.ID).Draw(r, "fields") {
			spec[name] = fields[kind][name].Draw(r, name)
		}
		text, err := json.Marshal(map[string]any{"apiVersion": "metallb.io/v1beta2", "kind": kind, "metadata": map[string]any{"name": "x"}, "spec": spec})
		if err != nil {
			r.Fatal(err)
		}
		objects, err := metallb.ReadDocuments(text)
		if err != nil {
			r.Fatalf("%v\n%s", err, text)
		}
		translation := metallb.Translate(objects, in)
		checkAdmitted(t, kinds, translation)
		manifest, err := translation.Manifest()
		if err != nil {
			r.Fatal(err)
		}
		shown := string(manifest) + told(translation)
		if strings.Contains(shown, "hunter2") {
			r.Fatalf("the password shows:\n%s", shown)
		}
		if strings.Contains(shown, "the object is left out") {
			return
		}
		for name, given := range spec {
			if !says(given) || strings.Contains(shown, name) || name == "dualStackAddressFamily" {
				continue // what that asks for is always so
			}
			r.Fatalf("%s, which is %v, is neither printed nor told of:\n%s\n%s", name, given, text, shown)
		}
	})
}

// says reports whether a value says more than leaving the field out.
func says(given any) bool {
	switch v := given.(type) {
	case nil:
		return false
	case bool:
		return v
	case int:
		return v != 0 && v != 32 && v != 128
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	default:
		return false // serviceAllocation and passwordSecret, whose fields come in tables
	}
}
