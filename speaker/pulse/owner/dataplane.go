package owner

import (
	"maps"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// forwardsFor bounds for how long the kernel of a node is believed to forward without a hello. It
// is twice as long as kubelet waits at most before it starts a container again. There are switches and
// hypervisors that answer for machines which are gone.
const forwardsFor = 10 * time.Minute

// dataplanes are the nodes whose hellos have ended, and that had addresses before others. Where pulse
// alone has ended, as when it is killed, the kernel goes on: it has the connections that are open,
// and forwards what is handed over to it. Only the kernel answers for the addresses that
// the node has itself, so these are asked for, on the networks on which they and this node are.
//
// Until the first answer has come or is late, a node counts as going on: its connections are not reset
// in the moment of the takeover. One that has failed to answer is dead until its hellos are
// heard again: a machine that boots answers long before it forwards, and knows no connection.
//
// Machine calls due when next says so.
type dataplanes map[string]*dataplane

type dataplane struct {
	witnesses []probeTarget // what is asked for; none: it is dead
	answered  bool
	asked     int // how often since the last answer
	at        time.Time
	until     time.Time // it is believed
}

// update takes in which nodes fell silent, which had addresses, and where they can be asked.
func (ks dataplanes) update(now time.Time, silent []string, former previousOwners, t *api.Table, r reach) {
	if len(ks)+len(silent) == 0 {
		return
	}
	of, on := former.among(silent), r.networks()
	maps.DeleteFunc(ks, func(node string, _ *dataplane) bool { return !of[node] })
	for node := range of {
		k := ks[node]
		if k == nil {
			k = &dataplane{at: now, until: now.Add(forwardsFor)}
			ks[node] = k
		} else if k.witnesses == nil {
			continue
		}
		k.witnesses = on.witnesses(t.Peers[node].Addrs)
	}
}

// goOn tells whether the kernel of a node forwards, or may do so.
func (ks dataplanes) goOn(node string) bool {
	k := ks[node]
	return k != nil && k.witnesses != nil
}

// answering are the nodes whose kernels have answered, sorted.
func (ks dataplanes) answering() []string {
	var nodes []string
	for node, k := range ks {
		if k.witnesses != nil && k.answered {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// under are the addresses whose stations are listened for, by interface.
func (ks dataplanes) under() []probeTarget {
	var all []probeTarget
	for _, k := range ks {
		all = append(all, k.witnesses...)
	}
	return all
}

// claimed takes in which station has an address, and tells whether that is the first word of a kernel. A reply of a
// station counts that the node had when it was heard in hellos: a router, for one, may
// answer for all addresses.
func (ks dataplanes) claimed(now time.Time, claim neighbour.Claim, of stations) (news bool) {
	k := ks[of.of(claim.Station)]
	if k == nil || !claim.Reply ||
		!slices.ContainsFunc(k.witnesses, func(w probeTarget) bool { return w.address == claim.Address && w.link == claim.Index }) {
		return false
	}
	news = !k.answered
	k.answered, k.asked, k.at = true, 0, now.Add(askAgain)
	return news
}

// due returns the questions to be asked now, and whether a node turned out to be dead.
func (ks dataplanes) due(now time.Time) (ask []probeTarget, news bool) {
	for _, k := range ks {
		switch {
		case k.witnesses == nil || now.Before(k.at):
		case k.asked == questions || !now.Before(k.until):
			k.witnesses, news = nil, true
		default:
			k.asked, k.at = k.asked+1, now.Add(questionEvery)
			ask = append(ask, k.witnesses...)
		}
	}
	return ask, news
}

// next is when there is something to do; zero: never.
func (ks dataplanes) next() time.Time {
	var next time.Time
	for _, k := range ks {
		if k.witnesses != nil {
			next = sooner(next, k.at)
		}
	}
	return next
}
