package allocation_test

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// pool makes a pool that is the older the smaller its age.
func pool(name string, age int, ranges ...string) *view.Pool {
	p := &view.Pool{Name: name, Created: epoch.Add(time.Duration(age) * time.Second), AutoAssign: true}
	for _, text := range ranges {
		r, err := addr.ParseRange(text)
		if err != nil {
			panic(err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	slices.SortFunc(p.Ranges, func(a, b netipx.IPRange) int { return a.From().Compare(b.From()) })
	return p
}

// option changes a Service or a pool of a test.
type option func(*view.Service)

func service(name string, age int, options ...option) *view.Service {
	s := &view.Service{
		Ref:          view.Ref{Namespace: "default", Name: name},
		Created:      epoch.Add(time.Duration(age) * time.Second),
		Type:         view.LoadBalancer,
		Families:     []addr.Family{addr.IPv4},
		FamilyPolicy: view.SingleStack,
	}
	for _, o := range options {
		o(s)
	}
	return s
}

func families(policy view.IPFamilyPolicy, f ...addr.Family) option {
	return func(s *view.Service) { s.FamilyPolicy, s.Families = policy, f }
}

func holds(addrs ...string) option {
	return func(s *view.Service) { s.Ingress = parse(addrs...) }
}

func asks(addrs ...string) option {
	return func(s *view.Service) { s.Request.Addresses = parse(addrs...) }
}

func asksPool(names ...string) option {
	return func(s *view.Service) { s.Request.Pools = names }
}

func parse(texts ...string) []netip.Addr {
	addrs := make([]netip.Addr, 0, len(texts))
	for _, t := range texts {
		addrs = append(addrs, netip.MustParseAddr(t))
	}
	return addrs
}

func cluster(pools []*view.Pool, services ...*view.Service) *view.Cluster {
	c := &view.Cluster{
		Pools: map[string]*view.Pool{}, Services: map[view.Ref]*view.Service{},
		Reservations: map[view.Ref]*view.Reservation{}, Cooling: map[netip.Addr]view.Ref{},
	}
	for _, p := range pools {
		c.Pools[p.Name] = p
	}
	for _, s := range services {
		c.Services[s.Ref] = s
	}
	return c
}

var (
	small   = pool("small", 1, "192.0.2.10-192.0.2.12")
	six     = pool("six", 2, "2001:db8::/64")
	dual    = families(view.PreferDualStack, addr.IPv4, addr.IPv6)
	both    = families(view.RequireDualStack, addr.IPv6, addr.IPv4)
	invalid = problem.New(problem.Object{Kind: "Service", Namespace: "default", Name: "a"}, "InvalidRequest", "unreadable")
)

func manual(p *view.Pool) *view.Pool {
	p.AutoAssign = false
	return p
}

func avoiding(p *view.Pool) *view.Pool {
	p.AvoidBuggyIPs = true
	return p
}

// told renders what a test compares: addresses by name, and problems as "object reason".
func told(assigned allocation.Assignments, problems []problem.Problem) (addrs map[string]string, reasons []string) {
	addrs = map[string]string{}
	for _, all := range []map[view.Ref]allocation.Assignment{assigned.Services, assigned.Reservations} {
		for ref, a := range all {
			texts := make([]string, 0, len(a.Addresses))
			for _, x := range a.Addresses {
				texts = append(texts, x.String())
			}
			addrs[ref.Name] = strings.Join(texts, " ")
		}
	}
	for _, p := range problems {
		reasons = append(reasons, p.Object.Name+" "+p.Reason)
	}
	return addrs, reasons
}
