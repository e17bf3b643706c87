package allocation_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/view"
)

// shares gives a Service a share key and its TCP ports.
func shares(key string, ports ...uint16) option {
	return func(s *view.Service) {
		s.Request.ShareKey = view.Secret(key)
		for _, port := range ports {
			s.Ports = append(s.Ports, view.ServicePort{Protocol: view.TCP, Port: port})
		}
	}
}

func udp(port uint16) option {
	return func(s *view.Service) { s.Ports = append(s.Ports, view.ServicePort{Protocol: view.UDP, Port: port}) }
}

// TestSharing: who may be on one address, and who gives way.
func TestSharing(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"one key and no port in common: one address": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, shares("k", 80)), service("b", 2, shares("k", 443)), service("c", 3, shares("k", 53)), service("d", 4, shares("k"), udp(53))},
			want:     map[string]string{"a": "192.0.2.10", "b": "192.0.2.10", "c": "192.0.2.10", "d": "192.0.2.10"},
		},
		"a port in common: the next address, which others with the key share": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, shares("k", 80)), service("b", 2, shares("k", 80, 443)), service("c", 3, shares("k", 443, 8080)), service("d", 4, shares("k", 8080))},
			want:     map[string]string{"a": "192.0.2.10", "b": "192.0.2.11", "c": "192.0.2.10", "d": "192.0.2.11"},
		},
		"another key, or none: another address": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, shares("k", 80)), service("b", 2, shares("l", 443)), service("c", 3, shares("", 53))},
			want:     map[string]string{"a": "192.0.2.10", "b": "192.0.2.11", "c": "192.0.2.12"},
		},
		"a requested address is shared by those with its key alone": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 1, shares("k", 80), asks("192.0.2.12")), service("b", 2, shares("k", 443), asks("192.0.2.12")),
				service("c", 3, shares("l", 53), asks("192.0.2.12")), service("d", 4, shares("", 54), asks("192.0.2.12")),
				service("e", 5, shares("k", 443), asks("192.0.2.12")),
			},
			want:     map[string]string{"a": "192.0.2.12", "b": "192.0.2.12", "c": "", "d": "", "e": ""},
			problems: []string{"c RequestTaken", "d RequestTaken", "e RequestTaken"},
		},
		"what is shared stays so, and nobody moves to share": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 1, shares("k", 80), holds("192.0.2.12")), service("b", 2, shares("k", 443), holds("192.0.2.12")),
				service("c", 3, shares("k", 53), holds("192.0.2.11")),
			},
			want: map[string]string{"a": "192.0.2.12", "b": "192.0.2.12", "c": "192.0.2.11"},
		},
		"a key or a port changes: the younger gives way": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 1, shares("k", 80), holds("192.0.2.12")), service("b", 2, shares("k", 80), holds("192.0.2.12")),
				service("c", 3, shares("l", 443), holds("192.0.2.12")),
			},
			want:     map[string]string{"a": "192.0.2.12", "b": "192.0.2.10", "c": "192.0.2.11"},
			problems: []string{"b AddressDuplicate", "c AddressDuplicate"},
		},
		"an address is not joined before those who leave it have left": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 1, shares("k", 80), holds("192.0.2.10")), service("leaves", 2, shares("k", 443), holds("192.0.2.10"), asks("192.0.2.12")),
				service("joins", 3, shares("k", 443)),
			},
			want: map[string]string{"a": "192.0.2.10", "leaves": "192.0.2.12", "joins": "192.0.2.11"},
		},
		"both families": {
			pools:    []*view.Pool{small, six},
			services: []*view.Service{service("a", 1, both, shares("k", 80)), service("b", 2, shares("k", 443)), service("c", 3, both, shares("k", 53))},
			want:     map[string]string{"a": "2001:db8:: 192.0.2.10", "b": "192.0.2.10", "c": "2001:db8:: 192.0.2.10"},
		},
		"only in a pool that it may use": {
			pools: []*view.Pool{manual(pool("asked", 1, "198.51.100.0/24")), small},
			services: []*view.Service{
				service("a", 1, shares("k", 80), asksPool("asked")), service("b", 2, shares("k", 443)),
				service("c", 3, shares("k", 53), asksPool("asked")),
			},
			want: map[string]string{"a": "198.51.100.0", "b": "192.0.2.10", "c": "198.51.100.0"},
		},
		"with one that is being deleted, and never with another class": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("dying", 1, shares("k", 80), holds("192.0.2.10"), func(s *view.Service) { s.Deleting = true }),
				service("other", 2, shares("l", 80), holds("192.0.2.11"), func(s *view.Service) { s.Class = "example.com/other" }),
				service("a", 3, shares("k", 443)), service("b", 4, shares("l", 443)),
			},
			want: map[string]string{"a": "192.0.2.10", "b": "192.0.2.12"},
		},
		"a request that cannot be read does not end the sharing": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 1, shares("k", 80), holds("192.0.2.12")),
				service("b", 2, shares("k", 443), holds("192.0.2.12"), func(s *view.Service) { s.Request.Invalid = &invalid }),
			},
			want:     map[string]string{"a": "192.0.2.12", "b": "192.0.2.12"},
			problems: []string{"a InvalidRequest"}, // the problem of the test is about a
		},
	})
}

// TestSharingMessages: who is refused learns why.
func TestSharingMessages(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{small},
		service("a", 1, shares("k", 80), holds("192.0.2.10")),
		service("port", 2, shares("k", 80), asks("192.0.2.10")),
		service("key", 3, shares("l", 443), asks("192.0.2.10")),
		service("none", 4, shares("", 443), asks("192.0.2.10")),
		service("moved", 5, shares("k", 80), holds("192.0.2.10")))
	_, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
	for _, want := range []string{
		`Service/default/port: RequestTaken: the requested address 192.0.2.10 is held by Service default/a (both have port 80/TCP)`,
		`Service/default/key: RequestTaken: the requested address 192.0.2.10 is held by Service default/a (their share keys differ)`,
		`Service/default/none: RequestTaken: the requested address 192.0.2.10 is held by Service default/a (to share it, give both the same annotation fairlead.dev/share-key)`,
		`Service/default/moved: AddressDuplicate: 192.0.2.10 is held by the older Service default/a as well (both have port 80/TCP); this Service has 192.0.2.11 instead`,
	} {
		found := false
		for _, p := range problems {
			found = found || p.String() == want
		}
		if !found {
			t.Errorf("nobody is told %q: %v", want, problems)
		}
	}
}

// TestSharedCountsOnce: a shared address is one address of its pool.
func TestSharedCountsOnce(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{small},
		service("a", 1, shares("k", 80), holds("192.0.2.10")), service("b", 2, shares("k", 443), holds("192.0.2.10")))
	if got := allocation.Count(c, allocation.Assignments{})["small"]; got.IPv4.Assigned != 1 || got.IPv4.Available != 2 {
		t.Errorf("counted %+v", got)
	}
}

// sharing reports whether two Services may be on one address, in words of its own.
func sharing(on netip.Addr, a, b *view.Service) bool {
	if a.Namespace != b.Namespace {
		both := slices.Contains(a.Request.ShareWith, b.Namespace) && slices.Contains(b.Request.ShareWith, a.Namespace)
		before := len(a.Request.ShareWith) == 0 && len(b.Request.ShareWith) == 0 && slices.Contains(a.Ingress, on) && slices.Contains(b.Ingress, on)
		if !both && !before {
			return false
		}
	}
	if a.Request.ShareKey == "" || a.Request.ShareKey != b.Request.ShareKey || a.Class != "" || b.Class != "" ||
		a.Type != view.LoadBalancer || b.Type != view.LoadBalancer {
		return false
	}
	used := map[string]bool{}
	for _, p := range a.Ports {
		used[fmt.Sprint(p.Protocol, p.Port)] = true
	}
	for _, p := range b.Ports {
		if used[fmt.Sprint(p.Protocol, p.Port)] {
			return false
		}
	}
	return true
}
