package verify

import (
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Checker checks one cluster again and again: what it knows of Services is brought up to date by what has changed
// between two snapshots of one source. The zero Checker has seen none.
type Checker struct {
	seen     uint64                     // revision of the last snapshot; 0: none, or one without a number
	services map[view.Ref]*view.Service // those of type LoadBalancer
	on       view.Index                 // the same by address
	several  map[netip.Addr]struct{}    // addresses of more than one
	willing  map[view.Ref]*view.Service // those that share their addresses
	last     scenery
	verdicts map[view.Ref][]problem.Problem // of Services, in the last scenery
}

// scenery is what is judged of a Service by, beside itself and those that share its addresses.
type scenery struct {
	ways     []way
	pools    []*view.Pool
	nodes    map[string]*view.Node
	speakers map[string]view.Speaker
	shared   map[netip.Addr][]*view.Service
	withheld map[netip.Addr]string
}

// same reports whether all but the shared and the withheld addresses are.
func (s *scenery) same(o *scenery) bool {
	return slices.Equal(s.pools, o.pools) && maps.Equal(s.nodes, o.nodes) && maps.Equal(s.speakers, o.speakers) && reflect.DeepEqual(s.ways, o.ways)
}

// follow takes in what has changed.
func (k *Checker) follow(c *view.Cluster) {
	looked := maps.Keys(c.Touched)
	if k.seen == 0 || c.Revision == 0 || c.Revision != k.seen && c.Since != k.seen {
		*k = Checker{
			services: map[view.Ref]*view.Service{}, on: view.Index{}, several: map[netip.Addr]struct{}{},
			willing: map[view.Ref]*view.Service{},
		}
		looked = maps.Keys(c.Services)
	}
	k.seen = c.Revision
	for ref := range looked {
		k.take(ref, c.Services[ref])
	}
}

// take replaces what is known of one Service, nil for one that is gone.
func (k *Checker) take(ref view.Ref, s *view.Service) {
	if before := k.services[ref]; before != nil {
		for _, vip := range before.VIPs {
			k.on.Remove(vip, ref)
			k.crowd(vip)
		}
	}
	delete(k.services, ref)
	delete(k.willing, ref)
	if s == nil || s.Type != view.LoadBalancer {
		return
	}
	k.services[ref] = s
	for _, vip := range s.VIPs {
		k.on.Add(vip, ref)
		k.crowd(vip)
	}
	if s.Request.ShareKey != "" && len(s.Ports) > 0 {
		k.willing[ref] = s
	}
}

func (k *Checker) crowd(vip netip.Addr) {
	if delete(k.several, vip); len(k.on[vip]) > 1 {
		k.several[vip] = struct{}{}
	}
}

// rejudge drops the verdicts that no longer hold, and returns the Services to judge anew.
func (k *Checker) rejudge(c *view.Cluster, now scenery) map[view.Ref]*view.Service {
	before := k.last
	k.last = now
	if k.verdicts == nil || !before.same(&now) {
		k.verdicts = map[view.Ref][]problem.Problem{}
		return k.services
	}
	anew := map[view.Ref]*view.Service{}
	look := func(ref view.Ref) {
		delete(k.verdicts, ref)
		if s := k.services[ref]; s != nil {
			anew[ref] = s
		}
	}
	for ref := range c.Touched {
		look(ref)
	}
	for _, vips := range []iter.Seq[netip.Addr]{
		maps.Keys(before.shared), maps.Keys(now.shared), maps.Keys(before.withheld), maps.Keys(now.withheld),
	} {
		for vip := range vips {
			for _, ref := range k.on[vip] {
				look(ref)
			}
		}
	}
	return anew
}
