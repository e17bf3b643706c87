package desired

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonClusterIPTaken is on a Service of which an external address is the ClusterIP of another one.
const ReasonClusterIPTaken = "ClusterIPTaken"

// clusterIPs knows which Services have and which ask for an address. What is sent to a
// ClusterIP is for its Service alone, whoever has it among its external addresses: else
// whoever may create Services could have the DNS of the whole cluster (CVE-2020-8554).
type clusterIPs struct {
	read  map[view.Ref]*view.Service   // as of the last decision
	of    view.Index                   // by ClusterIP: one, or more while one replaces another
	asked view.Index                   // by ExternalIP and VIP
	lost  map[view.Ref]problem.Problem // of who asks for one of another
}

func newClusterIPs() clusterIPs {
	return clusterIPs{
		read: map[view.Ref]*view.Service{}, of: view.Index{}, asked: view.Index{},
		lost: map[view.Ref]problem.Problem{},
	}
}

// take takes in what a Service is now; nil: it is gone. It adds to again those that may get
// other addresses by that.
func (c *clusterIPs) take(ref view.Ref, now *view.Service, again map[view.Ref]struct{}) {
	before := c.read[ref]
	if before == now {
		return
	}
	if c.read[ref] = now; now == nil {
		delete(c.read, ref)
	}
	had, has := internalOf(before), internalOf(now)
	if !slices.Equal(had, has) {
		exchange(c.of, ref, had, has)
		for _, a := range slices.Concat(had, has) {
			for _, who := range c.asked[a] {
				again[who] = struct{}{}
			}
		}
	}
	exchange(c.asked, ref, externalOf(before), externalOf(now))
}

func internalOf(s *view.Service) []netip.Addr {
	if s == nil {
		return nil
	}
	return s.ClusterIPs
}

func externalOf(s *view.Service) []netip.Addr {
	if s == nil {
		return nil
	}
	return slices.Concat(s.ExternalIPs, s.VIPs)
}

// exchange replaces the addresses that a Service is listed by.
func exchange(by view.Index, ref view.Ref, had, has []netip.Addr) {
	for _, a := range had {
		by.Remove(a, ref)
	}
	for _, a := range has {
		by.Add(a, ref)
	}
}

// cleared is a Service without those external addresses that are ClusterIPs: its own, which it
// has as such, or those of others, which is noted.
func (c *clusterIPs) cleared(s *view.Service) *view.Service {
	isClusterIP := func(a netip.Addr) bool { return len(c.of[a]) > 0 }
	if !slices.ContainsFunc(s.ExternalIPs, isClusterIP) && !slices.ContainsFunc(s.VIPs, isClusterIP) {
		return s
	}
	without := *s
	without.ExternalIPs = slices.DeleteFunc(slices.Clone(s.ExternalIPs), isClusterIP)
	without.VIPs = slices.DeleteFunc(slices.Clone(s.VIPs), isClusterIP)
	for i, a := range slices.Concat(s.ExternalIPs, s.VIPs) {
		if of := c.of[a]; len(of) > 0 && !slices.Contains(of, s.Ref) {
			field := "spec.externalIPs"
			if i >= len(s.ExternalIPs) {
				field = "status.loadBalancer.ingress"
			}
			c.lost[s.Ref] = problem.New(s.Object(), ReasonClusterIPTaken,
				"%s is the ClusterIP of Service %s, which gets what is sent there; take it out of %s", a, of[0], field)
			break
		}
	}
	return &without
}
