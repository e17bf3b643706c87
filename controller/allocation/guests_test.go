package allocation_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/view"
)

// tenant puts a Service into a namespace, and has it share with others.
func tenant(namespace string, with ...string) option {
	return func(s *view.Service) { s.Namespace, s.Request.ShareWith = namespace, with }
}

// visits marks an address that a Service holds as one that another namespace had first.
func visits(address string) option {
	return func(s *view.Service) { s.Guest = parse(address) }
}

// TestSharingAcrossNamespaces: both have to name the other's namespace, and the one that came last gives way,
// however old it is.
func TestSharingAcrossNamespaces(t *testing.T) {
	t.Parallel()
	const x = "192.0.2.10"
	check(t, map[string]plan{
		"by key alone: no": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, tenant("shop"), shares("k", 80), holds(x)), service("b", 2, tenant("evil"), shares("k", 443)), service("c", 3, tenant("evil"), shares("k", 444), asks(x))},
			want:     map[string]string{"a": x, "b": "192.0.2.11", "c": ""},
			problems: []string{"c RequestTaken"},
		},
		"one alone names the other: no": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, tenant("shop"), shares("k", 80)), service("b", 2, tenant("evil", "shop"), shares("k", 443))},
			want:     map[string]string{"a": x, "b": "192.0.2.11"},
		},
		"both do: yes": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, tenant("shop", "dns", "mail"), shares("k", 80)), service("b", 2, tenant("dns", "shop"), shares("k", 443))},
			want:     map[string]string{"a": x, "b": x},
		},
		"what was shared before there was an agreement stays, and is told": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, tenant("shop"), shares("k", 80), holds(x)), service("b", 2, tenant("dns"), shares("k", 443), holds(x))},
			want:     map[string]string{"a": x, "b": x},
			problems: []string{"b SharingNotAgreed", "a SharingNotAgreed"},
		},
		"until one says with which it shares": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, tenant("shop", "mail"), shares("k", 80), holds(x)), service("b", 2, tenant("dns"), shares("k", 443), holds(x))},
			want:     map[string]string{"a": x, "b": "192.0.2.11"},
			problems: []string{"b AddressDuplicate"},
		},
		"an older guest that takes a port of the host gives way": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 2, tenant("shop", "evil"), shares("k", 80), holds(x)), service("b", 1, tenant("evil", "shop"), shares("k", 80), holds(x), visits(x))},
			want:     map[string]string{"a": x, "b": "192.0.2.11"},
			problems: []string{"b AddressDuplicate"},
		},
		"one of the host's namespace that came after a guest does not": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 3, tenant("shop", "evil"), shares("k", 80), holds(x)), service("b", 1, tenant("evil", "shop"), shares("l", 443), holds(x), visits(x)),
			},
			want:     map[string]string{"a": x, "b": "192.0.2.11"},
			problems: []string{"b AddressDuplicate"},
		},
	})
}

// TestGuests: a Service is a guest where another namespace came first, until that has gone.
func TestGuests(t *testing.T) {
	t.Parallel()
	const x = "192.0.2.10"
	for name, test := range map[string]struct {
		services []*view.Service
		want     []string
	}{
		"joins":                         {[]*view.Service{service("a", 2, tenant("shop", "dns"), shares("k", 80), holds(x)), service("b", 1, tenant("dns", "shop"), shares("k", 443), asks(x))}, []string{"b"}},
		"both come at once":             {[]*view.Service{service("a", 2, tenant("shop", "dns"), shares("k", 80)), service("b", 1, tenant("dns", "shop"), shares("k", 443))}, []string{"a"}},
		"stays one, though it is older": {[]*view.Service{service("a", 2, tenant("shop", "dns"), shares("k", 80), holds(x)), service("b", 1, tenant("dns", "shop"), shares("k", 443), holds(x), visits(x))}, []string{"b"}},
		"another of the host's": {[]*view.Service{
			service("a", 2, tenant("shop", "dns"), shares("k", 80), holds(x)), service("b", 1, tenant("dns", "shop"), shares("k", 443), holds(x), visits(x)),
			service("c", 3, tenant("shop", "dns"), shares("k", 53), asks(x)),
		}, []string{"b"}},
		"the host has gone":  {[]*view.Service{service("b", 1, tenant("dns", "shop"), shares("k", 443), holds(x), visits(x))}, nil},
		"before the upgrade": {[]*view.Service{service("a", 2, tenant("shop"), shares("k", 80), holds(x)), service("b", 1, tenant("dns"), shares("k", 443), holds(x))}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster([]*view.Pool{small}, test.services...)
			for range 2 { // and stays so
				assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
				var got []string
				for ref, a := range assigned.Services {
					if !slices.Equal(a.Addresses, parse(x)) {
						t.Errorf("%s has %v", ref, a.Addresses)
					}
					if len(a.Guest) > 0 {
						got = append(got, ref.Name)
					}
				}
				if slices.Sort(got); !slices.Equal(got, test.want) {
					t.Errorf("guests are %v, want %v", got, test.want)
				}
				c = applied(c, assigned)
			}
		})
	}
}

// TestANamespaceTakesNothingFromAnother: at rest, whatever the Services of one namespace do that are guests or come
// anew, the others keep what they have and where they are not guests they become none.
func TestANamespaceTakesNothingFromAnother(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		for _, s := range c.Services { // they ask for nothing that another may leave to them
			s.Request = view.Request{ShareKey: s.Request.ShareKey, ShareWith: s.Request.ShareWith}
		}
		for _, p := range c.Pools {
			p.Renumber = false
		}
		for range 2*len(c.Services) + 2*len(c.Reservations) + 2 {
			assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
			c = applied(c, assigned)
		}
		before, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		for _, ref := range slices.SortedFunc(maps.Keys(c.Services), view.Ref.Compare) {
			if s := c.Services[ref]; s.Namespace == "shop" && len(s.Guest) == len(s.Ingress) {
				changed := drawService(t, s.Name)
				changed.Ref, changed.Created, changed.Ingress, changed.Guest = s.Ref, s.Created, s.Ingress, s.Guest
				c.Services[ref] = changed
			}
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "newcomers") {
			s := drawService(t, fmt.Sprintf("n%d", i))
			s.Namespace, s.Ingress = "shop", nil
			c.Services[s.Ref] = s
		}
		after, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		for ref, a := range before.Services {
			if ref.Namespace == "shop" {
				continue
			}
			for _, x := range a.Addresses {
				if !slices.Contains(after.Services[ref].Addresses, x) {
					t.Fatalf("%s lost %s by what others did: %v", ref, x, after.Services[ref])
				}
				if !slices.Contains(a.Guest, x) && slices.Contains(after.Services[ref].Guest, x) {
					t.Fatalf("%s became a guest on %s by what others did", ref, x)
				}
			}
		}
	})
}

// TestNoTextOfAnotherNamespace: whatever two namespaces ask for, no message of one has a key, or anything else
// that an annotation of the other says. Names of addresses are not secret.
func TestNoTextOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		texts := map[string]string{} // to the namespace whose text it is
		for _, ref := range slices.SortedFunc(maps.Keys(c.Services), view.Ref.Compare) {
			s := c.Services[ref]
			own := func(text string) string {
				text = "secret-" + text + "-of-" + s.Namespace
				texts[text] = s.Namespace
				return text
			}
			if s.Request.ShareKey != "" {
				s.Request.ShareKey = view.Secret(own(string(rune('k' + rapid.IntRange(0, 2).Draw(t, "key")))))
			}
			for i, name := range s.Request.Pools {
				if c.Pools[name] == nil {
					s.Request.Pools[i] = own(name)
				}
			}
			for i := range s.Request.Reservations {
				s.Request.Reservations[i] = own("reservation")
			}
			s.Request.ShareWith = append(slices.Clone(s.Request.ShareWith), own("namespace"))
			s.Request.Conflicts = append(s.Request.Conflicts, own("conflict"))
		}
		_, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		for _, p := range problems {
			for text, namespace := range texts {
				if p.Object.Namespace != namespace && strings.Contains(p.Message, text) {
					t.Fatalf("%s is told %q, which has %q", p.Object, p.Message, text)
				}
			}
		}
		for _, s := range c.Services {
			if d := fmt.Sprintf("%v %+v %#v", *s, *s, *s); s.Request.ShareKey != "" && strings.Contains(d, string(s.Request.ShareKey)) {
				t.Fatalf("a dump has a key: %s", d)
			}
		}
	})
}

// TestWhatCoolsDownCounts: a namespace cannot take more of a pool than it may by deleting what it has and creating
// it anew under other names.
func TestWhatCoolsDownCounts(t *testing.T) {
	t.Parallel()
	p := pool("p", 1, "192.0.2.10-192.0.2.19")
	p.MaxPerNamespace, p.CoolDown = 2, 1
	c := cluster([]*view.Pool{p}, service("c", 3), service("d", 4), service("e", 5, tenant("shop")))
	c.Cooling = map[netip.Addr]view.Ref{parse("192.0.2.10")[0]: {Namespace: "default", Name: "a"}, parse("192.0.2.11")[0]: {Namespace: "default", Name: "d"}}
	got, problems := told(allocation.Plan(c, allocation.Assignments{}, view.Classes{}))
	if d := cmp.Diff(map[string]string{"c": "", "d": "192.0.2.11", "e": "192.0.2.12"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !slices.Equal(problems, []string{"c QuotaExceeded"}) {
		t.Errorf("problems: %v", problems)
	}

	c = cluster([]*view.Pool{p}, service("a", 1, holds("192.0.2.10"), asks("192.0.2.15")), service("b", 2, holds("192.0.2.11")))
	if got, problems := told(allocation.Plan(c, allocation.Assignments{}, view.Classes{})); got["a"] != "192.0.2.10" || !slices.Contains(problems, "a QuotaExceeded") {
		t.Errorf("it moves, and what it leaves cools down besides: %v %v", got, problems)
	}
}
