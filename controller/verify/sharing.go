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
