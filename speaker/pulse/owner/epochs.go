package owner

import (
	"net/netip"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// take gives the epoch to what is answered for since now, forgets what is not this node's, and tells whether the
// epoch was used.
func (ds *arbitration) take(mine map[netip.Addr][]links.Link, wait map[netip.Addr]bool, epoch uint64) (used bool) {
	if ds.epochs == nil {
		ds.epochs = map[netip.Addr]uint64{}
	}
	for a := range ds.epochs {
		if d := ds.of[a]; mine[a] == nil && (d == nil || !d.stopped) {
			delete(ds.epochs, a)
		}
	}
	for a := range mine {
		if !wait[a] && ds.epochs[a] == 0 {
			ds.epochs[a], used = epoch, true
		}
	}
	return used
}

// retake gives what is taken without preemption the epoch that incumbents have for it. While this node is alone so it does
// to what was taken a moment ago, since not all of a network falls silent at once.
func (ds *arbitration) retake(now time.Time, mine map[netip.Addr][]links.Link, wait map[netip.Addr]bool, claims map[netip.Addr]desired.Candidacy,
	owned map[netip.Addr]api.Ownership, in *incumbents, alone bool,
) {
	if ds.epochs == nil {
		ds.epochs = map[netip.Addr]uint64{}
	}
	if in.of == nil {
		return // all addresses are with preemption
	}
	for a := range mine {
		o, answers := owned[a]
		if !claims[a].NoPreempt || wait[a] || answers && (!alone || !now.Before(o.Since.Add(presumedFor))) {
			continue
		}
		if epoch := in.epoch(a, alone); epoch > 0 {
			ds.epochs[a] = epoch
		}
	}
}
