package ledger_test

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/controller/ledger"
	"fairlead.dev/fairlead/internal/view"
)

// addresses are of few shards of both families, and some with many zeros.
func addresses() *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		base := rapid.SampledFrom([]string{"192.0.2.0", "192.0.3.0", "0.0.0.0", "2001:db8::", "2001:db8::1:0", "::", "fd00:0:0:1::"}).Draw(t, "net")
		a := netip.MustParseAddr(base)
		for range rapid.IntRange(0, 5).Draw(t, "last") {
			a = a.Next()
		}
		return a
	})
}

func refs() *rapid.Generator[view.Ref] {
	return rapid.Custom(func(t *rapid.T) view.Ref {
		return view.Ref{
			Namespace: rapid.SampledFrom([]string{"default", "until", "a-b"}).Draw(t, "namespace"),
			Name:      rapid.SampledFrom([]string{"web", "until", "r.s"}).Draw(t, "name"),
		}
	})
}

// begin is the time of the tests.
var begin = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func entries() *rapid.Generator[ledger.Entry] {
	return rapid.Custom(func(t *rapid.T) ledger.Entry {
		e := ledger.Entry{Owner: refs().Draw(t, "owner")}
		if rapid.Bool().Draw(t, "rests") {
			e.Until = begin.Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "until")) * time.Second)
		}
		return e
	})
}

func contents() *rapid.Generator[map[netip.Addr]ledger.Entry] {
	return rapid.MapOfN(addresses(), entries(), 0, 12)
}

func flat(b ledger.Book) map[netip.Addr]ledger.Entry { return maps.Collect(b.All()) }

// TestWith: a Book is what a map would be. It never changes, its pages are by shard, none is
// empty, and those that a change does not concern are the same.
func TestWith(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := contents().Draw(t, "before")
		changes := contents().Draw(t, "changes")
		for _, a := range rapid.SliceOf(addresses()).Draw(t, "removed") {
			changes[a] = ledger.Entry{}
		}
		b := ledger.Book{}.With(before)
		next := b.With(changes)
		if got := flat(b); !maps.Equal(got, before) {
			t.Fatalf("a change of another one made it %v, want %v", got, before)
		}
		want, resting, concerned := maps.Clone(before), map[netip.Addr]ledger.Entry{}, map[netip.Prefix]bool{}
		for a, e := range changes {
			concerned[ledger.Shard(a)] = true
			if want[a] = e; e == (ledger.Entry{}) {
				delete(want, a)
			}
		}
		for a, e := range want {
			if got, ok := next.At(a); !ok || got != e {
				t.Fatalf("%s: %v %t, want %v", a, got, ok, e)
			}
			if e.Rests() {
				resting[a] = e
			}
		}
		if got := flat(next); !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if got := maps.Collect(next.Resting()); !maps.Equal(got, resting) {
			t.Fatalf("resting %v, want %v", got, resting)
		}
		for shard, page := range next.Pages() {
			if len(page.Encode()) == 0 {
				t.Fatalf("the page of %s is empty", shard)
			}
			if !concerned[shard] && page != b.Page(shard) {
				t.Fatalf("the page of %s was made anew", shard)
			}
		}
	})
}

// TestNext: who holds an address is its owner; what nobody holds rests for the cool-down
// of its pool from when that was found, and no longer; to look twice changes nothing.
func TestNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := ledger.Book{}.With(contents().Draw(t, "book"))
		held := rapid.MapOfN(addresses(), refs(), 0, 6).Draw(t, "held")
		seconds := rapid.IntRange(1, 60).Draw(t, "cool-down")
		cool := time.Duration(seconds) * time.Second
		coolDown := func(a netip.Addr) time.Duration {
			if _, has := held[a]; has || a.Is4() {
				return cool
			}
			return 0
		}
		now := begin.Add(time.Duration(rapid.IntRange(0, 1999).Draw(t, "milliseconds")) * time.Millisecond)
		holder := func(a netip.Addr) (view.Ref, bool) { ref, has := held[a]; return ref, has }
		looked := flat(b)
		for a := range held {
			looked[a] = ledger.Entry{}
		}
		next := b.Next(maps.Keys(looked), holder, coolDown, now)
		for a, owner := range held {
			if e, _ := next.At(a); e != (ledger.Entry{Owner: owner}) {
				t.Fatalf("%s is held by %s, and recorded is %v", a, owner, e)
			}
		}
		for a, e := range next.All() {
			before, known := b.At(a)
			_, has := held[a]
			switch {
			case has:
			case !known, coolDown(a) == 0, e.Owner != before.Owner:
				t.Fatalf("%s: %v was made of %v", a, e, before)
			case !e.Until.After(now), e.Until.Sub(now) > cool+time.Second:
				t.Fatalf("%s rests until %v, and it is %v", a, e.Until, now)
			case !before.Rests() && e.Until.Sub(now) < cool:
				t.Fatalf("%s rests until %v only, freed at %v at the latest", a, e.Until, now)
			}
		}
		for a, e := range b.All() {
			if _, still := next.At(a); !still && coolDown(a) > 0 && (!e.Rests() || e.Until.After(now)) {
				t.Fatalf("%s is forgotten at %v: %v", a, now, e)
			}
		}
		again := next.Next(maps.Keys(looked), holder, coolDown, now)
		if !maps.Equal(maps.Collect(again.Pages()), maps.Collect(next.Pages())) {
			t.Fatalf("a second look makes %v of %v", flat(again), flat(next))
		}
	})
}

// TestRecall: what is known already is not taken from what was stored.
func TestRecall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		known, stored := contents().Draw(t, "known"), contents().Draw(t, "stored")
		want := maps.Clone(stored)
		maps.Copy(want, known)
		if got := flat(ledger.Book{}.With(known).Recall(ledger.Book{}.With(stored))); !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestEncode: what is written is read again, and fit for a ConfigMap.
func TestEncode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := ledger.Book{}.With(contents().Draw(t, "book"))
		for shard, page := range b.Pages() {
			name := ledger.Name(shard)
			if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
				t.Fatalf("the name %s: %v", name, errs)
			}
			if got, ok := ledger.ParseName(name); !ok || got != shard {
				t.Fatalf("%s is read as %v %t, want %s", name, got, ok, shard)
			}
			data := page.Encode()
			for key := range data {
				if errs := validation.IsConfigMapKey(key); len(errs) > 0 {
					t.Fatalf("the key %s: %v", key, errs)
				}
			}
			got, faults := ledger.Decode(shard, data)
			if want := maps.Collect(page.All()); len(faults) > 0 || !maps.Equal(flat(got), want) {
				t.Fatalf("%v is read as %v (%v), want %v", data, flat(got), faults, want)
			}
		}
	})
}

// TestDecodeNonsense: what cannot be read is named and keeps nothing else from being read.
func TestDecodeNonsense(t *testing.T) {
	t.Parallel()
	shard := netip.MustParsePrefix("192.0.2.0/24")
	good := map[string]string{"192.0.2.1": "default/web", "192.0.2.2": "default/web until 2026-01-02T15:04:05Z"}
	for _, bad := range [][2]string{
		{"nonsense", "default/web"},
		{"192.0.2.300", "default/web"},
		{"192.0.3.1", "default/web"},
		{"2001-db8--1", "default/web"},
		{"192.0.2.03", "default/web"},
		{"192.0.2.3", ""},
		{"192.0.2.3", "web"},
		{"192.0.2.3", "/web"},
		{"192.0.2.3", "default/"},
		{"192.0.2.3", "a/b/c"},
		{"192.0.2.3", "default/web forever"},
		{"192.0.2.3", "default/web until tomorrow"},
		{"192.0.2.3", "default/web until 0001-01-01T00:00:00Z"},
		{"192.0.2.3", "default/web until 2026-01-02T15:04:05.5Z"},
	} {
		data := maps.Clone(good)
		data[bad[0]] = bad[1]
		b, faults := ledger.Decode(shard, data)
		if len(faults) != 1 || !maps.Equal(b.Page(shard).Encode(), good) {
			t.Errorf("%q: %v, faults %q", bad, flat(b), faults)
		}
	}
	for _, name := range []string{"", "fairlead-ledger", "fairlead-ledger-", "fairlead-ledger-192.0.2.0", "fairlead-ledger-192.0.2.1-24", "fairlead-ledger-192.0.2.0-25", "fairlead-ledger-2001-db8---120"} {
		if shard, ok := ledger.ParseName(name); ok {
			t.Errorf("%q is read as %s", name, shard)
		}
	}
}

// FuzzDecode: whatever somebody writes into an object, it is read without harm, and what
// was understood is written so that it is understood again.
func FuzzDecode(f *testing.F) {
	f.Add("192.0.2.0/24", "192.0.2.1", "default/web")
	f.Add("192.0.2.0/24", "192.0.2.1", "default/web until 2026-01-02T15:04:05+02:00")
	f.Add("2001:db8::/120", "2001-db8--1", "default/web until 9999-12-31T23:59:59Z")
	f.Fuzz(func(t *testing.T, prefix, key, value string) {
		shard, err := netip.ParsePrefix(prefix)
		if err != nil {
			return
		}
		_, _ = ledger.ParseName(key)
		b, faults := ledger.Decode(shard, map[string]string{key: value})
		if (len(faults) == 0) == (len(flat(b)) == 0) {
			t.Fatalf("%q %q: %v, faults %q", key, value, flat(b), faults)
		}
		again, faults := ledger.Decode(shard, b.Page(shard).Encode())
		if len(faults) > 0 || !maps.Equal(flat(again), flat(b)) {
			t.Fatalf("%v is read again as %v, faults %q", flat(b), flat(again), faults)
		}
	})
}
