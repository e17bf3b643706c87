package verify

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonNoCommonNode is on Services that share an address under policy Local while no
// node has endpoints of all of them, so that none announces it; and on a guest, of
// another namespace than the Services that had the address first, that the nodes which
// announce it for these do not serve.
const ReasonNoCommonNode = "NoCommonNode"

// local is a Service of policy Local on an address, and the nodes that can serve it.
type local struct {
	service *view.Service
	nodes   []string
}

// apart finds the addresses that Services share under externalTrafficPolicy Local and
// that no node may announce, since none can serve all of them. A Service that no node
// can serve does not keep others from being announced, and one of policy Cluster any node
// serves. Guests do not count.
func (k *Checker) apart(r *reach) {
	sharing := map[netip.Addr][]local{}
	for vip := range k.several {
		for _, ref := range k.on[vip] {
			s := k.services[ref]
			if !s.ExternalLocal || slices.Contains(r.guests[vip], s) {
				continue
			}
			if nodes := announcing(r.cluster, s, vip); len(nodes) > 0 {
				sharing[vip] = append(sharing[vip], local{s, nodes})
			}
		}
	}
	for vip, all := range sharing {
		if meet(all) {
			continue
		}
		told := whoWhere(all)
		for _, l := range all {
			r.add(l.service.Object(), ReasonNoCommonNode,
				"%s is announced by nobody: no node has endpoints of all Services that share it under externalTrafficPolicy Local: %s; "+
					"run their pods on the same nodes, or set the policy Cluster", vip, told)
		}
	}
}

func meet(all []local) bool {
	return slices.ContainsFunc(all[0].nodes, func(node string) bool {
		return !slices.ContainsFunc(all[1:], func(l local) bool { return !slices.Contains(l.nodes, node) })
	})
}

func whoWhere(all []local) string {
	where := make(map[string]string, len(all))
	for _, l := range all {
		where[l.service.String()] = fmt.Sprintf("%s has them on %s", l.service.Ref, problem.List(l.nodes, " "))
	}
	told := make([]string, 0, len(where))
	for _, name := range slices.Sorted(maps.Keys(where)) {
		told = append(told, where[name])
	}
	return strings.Join(told, ", ")
}

// sharers are the Services on each address, of those that share theirs if they may; and of these the
// guests, which are in sharing no more.
func (k *Checker) sharers(c *view.Cluster) (sharing, guests map[netip.Addr][]*view.Service) {
	sharing, guests = map[netip.Addr][]*view.Service{}, map[netip.Addr][]*view.Service{}
	for _, s := range k.willing {
		for _, vip := range s.VIPs {
			sharing[vip] = append(sharing[vip], s)
		}
	}
	for vip, all := range sharing {
		host := hostOf(c, vip, all)
		visits := func(s *view.Service) bool { return s.Namespace != host }
		if slices.ContainsFunc(all, visits) {
			guests[vip] = slices.DeleteFunc(slices.Clone(all), func(s *view.Service) bool { return !visits(s) })
			sharing[vip] = slices.DeleteFunc(all, visits)
		}
	}
	return sharing, guests
}

// hostOf is the namespace for which nodes announce an address: of those that have Services which a node can
// serve the one that came first, else the first. Under policy Cluster any node serves.
func hostOf(c *view.Cluster, vip netip.Addr, all []*view.Service) string {
	slices.SortFunc(all, func(a, b *view.Service) int { return a.CompareOn(vip, b) })
	for _, first := range all {
		if slices.ContainsFunc(all, func(s *view.Service) bool {
			return s.Namespace == first.Namespace && (!s.ExternalLocal || len(announcing(c, s, vip)) > 0)
		}) {
			return first.Namespace
		}
	}
	return all[0].Namespace
}

// visitors finds guests that the nodes which announce an address for its host do not serve.
func visitors(r *reach) {
	if len(r.guests) == 0 {
		return
	}
	pools, ways := r.cluster.PoolsByAge(), r.ways()
	for vip, guests := range r.guests {
		pool, hosts := view.PoolOf(pools, vip), r.sharing[vip]
		covering := slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return pool == nil || !w.pools.Matches(pool) })
		if len(covering) == 0 {
			continue // it is the pool that is not announced
		}
		nodes := r.announcingTogether(vip, hosts, choosing(covering, hosts...))
		for _, s := range guests {
			visit(r, s, vip, hosts[0].Namespace, nodes)
		}
	}
}

// announcingTogether are the nodes that announce an address by one of the ways and serve all of the Services.
func (r *reach) announcingTogether(vip netip.Addr, services []*view.Service, ways []way) []string {
	var nodes []string
	for _, w := range ways {
		nodes = append(nodes, w.nodes...)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	for _, s := range services {
		if serving := announcing(r.cluster, s, vip); s.ExternalLocal && len(serving) > 0 {
			nodes = slices.DeleteFunc(nodes, func(node string) bool { return !slices.Contains(serving, node) })
		}
	}
	return nodes
}

// visit tells a guest of an address what it lacks on the nodes that announce it for the host.
func visit(r *reach, s *view.Service, vip netip.Addr, host string, nodes []string) {
	serving := announcing(r.cluster, s, vip)
	elsewhere := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return slices.Contains(serving, node) })
	switch {
	case len(nodes) == 0:
		r.add(s.Object(), ReasonNoCommonNode, "%s is announced by nobody: nodes announce it for the Services of namespace %q, which had it first, and none may now; "+
			"wait, or ask for another address", vip, host)
	case !s.ExternalLocal || len(serving) == 0 || len(elsewhere) == 0:
	case len(elsewhere) == len(nodes):
		r.add(s.Object(), ReasonNoCommonNode, "%s is announced by no node that has endpoints of this Service, which externalTrafficPolicy Local asks for: nodes announce it "+
			"for the Services of namespace %q, which had it first; run its pods on the nodes that announce it, or set the policy Cluster", vip, host)
	default:
		r.advise(s.Object(), ReasonNoCommonNode, "%s is announced by %d nodes, and %d of them have no endpoints of this Service, which externalTrafficPolicy Local asks for: nodes "+
			"announce it for the Services of namespace %q, which had it first; run its pods on all that announce it, or set the policy Cluster",
			vip, len(nodes), len(elsewhere), host)
	}
}
