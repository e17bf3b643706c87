package owner

import (
	"maps"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

const (
	// absentQuestions are asked absentEvery, of which all but one in a thousand times one gets through
	// where a third of the frames is lost either way.
	absentQuestions = 10
	absentEvery     = 100 * time.Millisecond
	// presentAfter is for how long a node that counts as dead must answer to count as alive without a hello. A
	// machine that boots is said not to be ready by then.
	presentAfter = time.Minute
)

// unheardNodes are the nodes that this one has never heard, and that count as alive since Kubernetes says that they are
// ready (docs/adr/0009). Only its kernel answers for the addresses that a node has itself, so these are asked for, on
// the networks on which they and this node are. Where only hellos do not get through, as with a firewall, the
// kernel answers, and that is all there is to know. Where nothing answers, but the network does answer this
// node, the other one was dead when this one began: Kubernetes takes the better part of a minute to notice.
//
// It stays dead until it is heard, or Kubernetes has said that it is not ready: a machine that
// boots answers long before it serves.
//
// Machine calls due when next says so.
type unheardNodes struct {
	of       map[string]*unheardNode
	gateways []probeTarget
	met      bool      // another node is heard
	vouched  time.Time // when a gateway answered last
}

type unheardNode struct {
	witnesses []probeTarget // what is asked for
	asked     int
	at        time.Time // of the next question, or the verdict
	present   bool      // it has answered: no more questions
	dead      bool
	replied   bool      // to the last question; and what follows, of one that is dead:
	since     time.Time // it replies to all questions; zero: it does not
}

// update takes in which nodes are heard, which Kubernetes calls ready, and where nodes can be asked.
func (s *unheardNodes) update(now time.Time, v hello.View, t *api.Table, r reach, gateways []links.Gateway) {
	unheard := unheardBy(t, v)
	if !v.Settled || len(unheard) == 0 {
		*s = unheardNodes{}
		return
	}
	if s.of == nil {
		s.of = map[string]*unheardNode{}
	}
	maps.DeleteFunc(s.of, func(node string, _ *unheardNode) bool { return !slices.Contains(unheard, node) })
	s.met = false
	for node, m := range v.Alive {
		s.met = s.met || m.Heard && node != t.Node
	}
	on, pending := r.networks(), 0
	s.gateways = on.gateways(gateways)
	for _, node := range unheard {
		n := s.of[node]
		if n == nil {
			if !v.IsAlive(node) { // others have said that it died
				continue
			}
			n = &unheardNode{at: now}
			s.of[node] = n
		}
		n.witnesses = nil
		if n.dead || !n.present && pending < maxWitnesses {
			n.witnesses = on.witnesses(t.Peers[node].Addrs)
		}
		if !n.dead && len(n.witnesses) > 0 {
			pending++
		}
	}
}

// unheardBy are the nodes that Kubernetes calls ready and of which no hello was ever heard, sorted.
func unheardBy(t *api.Table, v hello.View) []string {
	var nodes []string
	for node, p := range t.Peers {
		if p.Ready && !v.Alive[node].Heard && !slices.Contains(v.Silent, node) && !slices.Contains(v.Apart, node) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// dead are the nodes that were found dead, sorted.
func (s *unheardNodes) dead() []string {
	var nodes []string
	for node, n := range s.of {
		if n.dead {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// under are the addresses whose stations are listened for, by interface.
func (s *unheardNodes) under() []probeTarget {
	var all []probeTarget
	for _, n := range s.of {
		all = append(all, n.witnesses...)
	}
	if len(all) > 0 {
		all = append(all, s.gateways...)
	}
	return all
}

// claimed takes in which station has an address, and tells whether anything follows.
func (s *unheardNodes) claimed(now time.Time, claim neighbour.Claim) (news bool) {
	asked := func(w probeTarget) bool { return w.address == claim.Address && w.link == claim.Index }
	if claim.Probe {
		return false
	}
	if slices.ContainsFunc(s.gateways, asked) {
		s.vouched = now
	}
	for _, n := range s.of {
		if !claim.Reply || !slices.ContainsFunc(n.witnesses, asked) {
			continue
		}
		n.replied = true
		if n.dead && n.since.IsZero() {
			n.since = now
		}
		if !n.dead || !now.Before(n.since.Add(presentAfter)) {
			n.present, n.dead, n.witnesses, news = true, false, nil, true
		}
	}
	return news
}

// due returns the questions to be asked now, and whether a node turned out to be dead.
func (s *unheardNodes) due(now time.Time) (ask []probeTarget, news bool) {
	for _, n := range s.of {
		if len(n.witnesses) == 0 || now.Before(n.at) {
			continue
		}
		switch {
		case n.dead:
			if !n.replied {
				n.since = time.Time{}
			}
			n.replied, n.at = false, now.Add(askAgain)
		case n.asked < absentQuestions:
			n.asked, n.at = n.asked+1, now.Add(absentEvery)
		case s.met || now.Sub(s.vouched) <= absentQuestions*absentEvery:
			n.dead, n.at, news = true, now.Add(askAgain), true
			continue
		default: // it may be this node that is not heard
			n.asked, n.at = 0, now.Add(askSeldom)
			continue
		}
		ask = append(ask, n.witnesses...)
	}
	if len(ask) > 0 && !s.met {
		ask = append(ask, s.gateways...)
	}
	return ask, news
}

// next is when there is something to do; zero: never.
func (s *unheardNodes) next() time.Time {
	var next time.Time
	for _, n := range s.of {
		if len(n.witnesses) > 0 {
			next = sooner(next, n.at)
		}
	}
	return next
}

// unready are the peers, of which these nodes count as not ready.
func unready(peers map[string]hello.Peer, nodes []string) map[string]hello.Peer {
	if len(nodes) == 0 {
		return peers
	}
	peers = maps.Clone(peers)
	for _, node := range nodes {
		if p, is := peers[node]; is {
			p.Ready = false
			peers[node] = p
		}
	}
	return peers
}
