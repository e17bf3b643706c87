package verify

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/peering"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// reach knows from which nodes to which peers advertisements announce, and collects what is wrong.
type reach struct {
	cluster *view.Cluster
	nodes   []*view.Node    // by name
	peers   []*view.BGPPeer // by age
	at      [][]bool        // which of the nodes each of the peers chooses
	// inUse are the BGPAdvertisements by name, with the communities that they name. The others
	// name some that no Community has: these are unknown, by advertisement.
	inUse   []*view.BGPAdvertisement
	unknown map[string][]string
	down    map[pair]bool // sessions; Check has them
	// sharing are the Services that share an address, and guests those among them of other namespaces than
	// that for which nodes announce it. Check has them.
	sharing, guests map[netip.Addr][]*view.Service

	problems []problem.Problem
}

func (r *reach) add(object problem.Object, reason, format string, args ...any) {
	r.problems = append(r.problems, problem.New(object, reason, format, args...))
}

func (r *reach) advise(object problem.Object, reason, format string, args ...any) {
	r.problems = append(r.problems, problem.Advice(object, reason, format, args...))
}

func newReach(c *view.Cluster) *reach {
	nodes := slices.SortedFunc(maps.Values(c.Nodes), func(x, y *view.Node) int { return cmp.Compare(x.Name, y.Name) })
	r := &reach{cluster: c, nodes: nodes, peers: peering.ByAge(c), unknown: map[string][]string{}}
	for _, p := range r.peers {
		r.at = append(r.at, r.chosen(p.NodeSelectors))
	}
	for _, name := range slices.Sorted(maps.Keys(c.BGPAdvertisements)) {
		ad, unknown := c.Resolved(c.BGPAdvertisements[name])
		if len(unknown) > 0 {
			r.unknown[name] = unknown
			continue
		}
		r.inUse = append(r.inUse, ad)
	}
	return r
}

// chosen tells of each of the nodes whether the selectors choose it.
func (r *reach) chosen(selectors []view.Selector) []bool {
	chosen := make([]bool, len(r.nodes))
	for i, node := range r.nodes {
		chosen[i] = view.MatchesAny(selectors, node.Labels)
	}
	return chosen
}

// of are the peers that the advertisement announces to, from some node at least.
func (r *reach) of(ad *view.BGPAdvertisement) []*view.BGPPeer {
	from := r.chosen(ad.NodeSelectors)
	var peers []*view.BGPPeer
	for i, p := range r.peers {
		if ad.IsFor(p.Name) && overlap(from, r.at[i]) {
			peers = append(peers, p)
		}
	}
	return peers
}

// from tells of each of the nodes whether the advertisement announces to some peer from there, and from which of these it
// reaches none. A session of which its node tells nothing may be established.
func (r *reach) from(ad *view.BGPAdvertisement) ([]bool, silence) {
	from, silent := r.chosen(ad.NodeSelectors), silence{}
	for at, chosen := range from {
		if !chosen {
			continue
		}
		node, speaks := r.nodes[at].Name, false
		var down []string
		for i, p := range r.peers {
			switch {
			case !r.at[i][at] || !ad.IsFor(p.Name):
			case r.down[pair{node, p.Name}]:
				down = append(down, p.Name)
			default:
				speaks = true
			}
		}
		from[at] = speaks || len(down) > 0
		if !speaks && len(down) > 0 {
			silent[node] = down
		}
	}
	return from, silent
}

// able are those of the chosen nodes that may announce at all, sorted.
func (r *reach) able(chosen []bool) []string {
	var nodes []string
	for i, node := range r.nodes {
		if chosen[i] && mayAnnounce(r.cluster, node) {
			nodes = append(nodes, node.Name)
		}
	}
	return nodes
}

// whyUnable returns why a node that is there may not announce, and what to do; "" if it may, and has a speaker: one that says which
// networks it is on. While none says so, nothing is known of any.
func whyUnable(c *view.Cluster, n *view.Node) string {
	_, speaks := c.Speakers[n.Name]
	switch {
	case n.Excluded:
		return "excluded from load balancers: remove the label node.kubernetes.io/exclude-from-external-load-balancers, " +
			"which control-plane nodes usually have, or set speaker.ignoreExcludeLB of the chart; or out of service: remove the taint node.kubernetes.io/out-of-service"
	case n.Condemned:
		return "about to be deleted by an autoscaler"
	case !n.MayAnnounce(): // for the last of its reasons
		return "without network: see the condition NetworkUnavailable of the node"
	case !speaks && len(c.Speakers) > 0:
		return "without a speaker: see speaker.nodeSelector and speaker.tolerations of the chart"
	}
	return ""
}

// mayAnnounce reports whether a node is there and may announce.
func mayAnnounce(c *view.Cluster, n *view.Node) bool { return n != nil && whyUnable(c, n) == "" }

// served are the Services of type LoadBalancer whose endpoints are known, with these.
func served(c *view.Cluster) iter.Seq2[*view.Service, []view.Endpoint] {
	return func(yield func(*view.Service, []view.Endpoint) bool) {
		for ref, endpoints := range c.Endpoints.All() {
			if s := c.Services[ref]; s != nil && s.Type == view.LoadBalancer && !yield(s, endpoints) {
				return
			}
		}
	}
}

func overlap(some, others []bool) bool {
	for i := range some {
		if some[i] && others[i] {
			return true
		}
	}
	return false
}

// The two ways in which no node goes by an advertisement.
const (
	noNode = "chooses no node by spec.nodeSelectors: label a node, or correct them"
	noPeer = "has no BGPPeer on the nodes that it chooses: create one, or correct spec.peers and the nodeSelectors of both"
)

// vainLayer2 says why no node goes by the advertisement, "" if one does.
func (r *reach) vainLayer2(ad *view.L2Advertisement) string {
	if !slices.Contains(r.chosen(ad.NodeSelectors), true) {
		return noNode
	}
	return ""
}

// vainBGP says why no node goes by the advertisement, "" if one does.
func (r *reach) vainBGP(ad *view.BGPAdvertisement) string {
	switch {
	case !slices.Contains(r.chosen(ad.NodeSelectors), true):
		return noNode
	case len(r.of(ad)) == 0:
		return noPeer
	}
	return ""
}
