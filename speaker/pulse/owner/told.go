package owner

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// told is what the mesh was told last of this node.
type told struct {
	stale      bool // the mesh does not know all that follows
	stations   []hello.Station
	interfaces []hello.Interface
	unable     []netip.Addr
	ready      bool // this node answers for what it owns
	vouched    bool
	claims     []hello.Claim
	damped     []string // nodes that flap
}

// present notes by which stations this node is met.
func (d *told) present(stations []hello.Station) {
	if !slices.Equal(stations, d.stations) {
		d.stations, d.stale = stations, true
	}
}

// connect notes on which interfaces it is met.
func (d *told) connect(interfaces []hello.Interface) {
	if !slices.EqualFunc(interfaces, d.interfaces, hello.Interface.Equal) {
		d.interfaces, d.stale = interfaces, true
	}
}

// discuss notes what is to be told of addresses in dispute, by address within each list: of each address the first claim.
func (d *told) discuss(all ...[]hello.Claim) {
	for _, claims := range all {
		slices.SortFunc(claims, func(a, b hello.Claim) int { return a.Address.Compare(b.Address) })
	}
	said := map[netip.Addr]bool{}
	claims := slices.DeleteFunc(slices.Concat(all...), func(c hello.Claim) bool {
		again := said[c.Address]
		said[c.Address] = true
		return again
	})
	if !slices.Equal(claims, d.claims) {
		d.claims, d.stale = claims, true
	}
}

// tell has the mesh told what it does not know.
func (m *Machine) tell(d *Decision, unable []netip.Addr, ready bool) {
	is := &m.told
	stale := is.stale || !slices.Equal(unable, is.unable)
	if !stale && is.ready == ready {
		return
	}
	is.stale, is.unable, is.ready = false, unable, ready
	w := wanted(m.table, *is)
	w.Peers = unready(w.Peers, m.absent)
	d.Tell, d.Stale, d.Ready = &w, stale || d.Stale, ready
}

// wanted is the table's word, and the addresses out of reach so that the next candidate takes them over. A node that
// is not ready serves nothing yet, whatever the table says.
func wanted(t *api.Table, d told) hello.Wanted {
	all := slices.Concat(t.Unable, d.unable)
	slices.SortFunc(all, netip.Addr.Compare)
	var claimed []netip.Addr
	if len(all) > 0 { // the mesh needs them to tell of addresses in prefixes
		claimed = slices.Collect(maps.Keys(t.Addresses()))
	}
	return hello.Wanted{
		Peers:   t.Peers,
		Key:     []byte(t.Key),
		Serving: t.Serving && d.ready,
		Unable:  slices.Compact(all),
		Claimed: claimed,
		Leaving: t.Leaving && !t.ShutsDown,

		Stations:   d.stations,
		Table:      t.Digests,
		Interfaces: d.interfaces,
		Vouched:    d.vouched,
		Claims:     d.claims,
		Damped:     d.damped,
	}
}
