package desired

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// ability is all that announcing an address reads of a Service and its endpoints; the zero
// ability is that of a Service that is not announced.
type ability struct {
	service *view.Service
	usable  map[addr.Family][]string // the nodes that serve it, see usable
	here    map[addr.Family]int      // usable endpoints on this node, under policy Local
}

func abilityOf(c *view.Cluster, ref view.Ref, o Options) ability {
	s := c.Services[ref]
	if s == nil || !announceable(s, o) {
		return ability{}
	}
	able := ability{s, map[addr.Family][]string{}, map[addr.Family]int{}}
	for _, family := range addr.Families() {
		endpoints := view.UsableOf(s, c.Endpoints.Of(ref), family)
		able.usable[family] = usable(s, endpoints)
		if s.ExternalLocal {
			able.here[family] = endpoints.CountOn(o.Node)
		}
	}
	return able
}

// equal reports whether the Service is announced in the same way. Most changes of endpoints
// do not change that.
func (a ability) equal(o ability) bool {
	return a.service == o.service && maps.Equal(a.here, o.here) && maps.EqualFunc(a.usable, o.usable, slices.Equal[[]string])
}

func (a ability) vips() []netip.Addr {
	if a.service == nil {
		return nil
	}
	return a.service.VIPs
}

// holders are the Services that are announced, and which of them hold an address, sorted.
type holders struct {
	able map[view.Ref]ability
	of   view.Index
}

// update takes over the ability of a Service, and notes the addresses that this is about.
func (h *holders) update(ref view.Ref, now ability, moved map[netip.Addr]struct{}) {
	before := h.able[ref]
	if before.equal(now) {
		return
	}
	exchange(h.of, ref, before.vips(), now.vips())
	for _, address := range slices.Concat(before.vips(), now.vips()) {
		moved[address] = struct{}{}
	}
	if h.able[ref] = now; now.service == nil {
		delete(h.able, ref)
	}
}
