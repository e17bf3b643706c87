package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"fairlead.dev/fairlead/internal/view"
)

// Sessions are those of one BGPPeer.
type Sessions struct {
	// Nodes counts those that the peer chooses, and Established those of them whose
	// session is.
	Nodes, Established int
	// Lacking says of each of the others why it is not, in the order of their names.
	Lacking []string
}

type pair struct{ node, peer string }

// CountSessions counts the sessions of each BGPPeer. That of a node which Kubernetes does
// not call ready does not count: its speaker may have had no chance to say that it is gone.
func CountSessions(c *view.Cluster) map[string]Sessions {
	sessions := make(map[pair]*view.BGPSession, len(c.BGPSessions))
	for _, s := range c.BGPSessions {
		sessions[pair{s.Node, s.Peer}] = s
	}
	nodes := slices.Sorted(maps.Keys(c.Nodes))
	counts := make(map[string]Sessions, len(c.BGPPeers))
	for name, peer := range c.BGPPeers {
		var count Sessions
		for _, node := range nodes {
			if !view.MatchesAny(peer.NodeSelectors, c.Nodes[node].Labels) {
				continue
			}
			count.Nodes++
			if why := lacking(c.Nodes[node], sessions[pair{node, name}]); why != "" {
				count.Lacking = append(count.Lacking, fmt.Sprintf("node %s: %s", node, why))
			} else {
				count.Established++
			}
		}
		counts[name] = count
	}
	return counts
}

// lacking says why the session of a node is not established, "" if it is.
func lacking(node *view.Node, s *view.BGPSession) string {
	switch {
	case s == nil:
		return "no speaker there tells of one (is the node in the chart's speaker.nodeSelector?)"
	case !node.Ready:
		return "not ready, so that nothing is known of its session"
	case !s.Established:
		return cmp.Or(s.LastError, "the session is coming up")
	default:
		return ""
	}
}
