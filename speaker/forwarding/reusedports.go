package forwarding

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/forwarding/reusedports"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// FreeReusedPorts deletes, until ctx ends, flows to endpoints that serve no more whose client begins another one on the
// same ports: it would be sent after the old one, which nothing ends if the endpoint is dead. Other flows to
// such endpoints go on.
func (f *Forwarder) FreeReusedPorts(ctx context.Context) {
	if f.mode == None {
		<-ctx.Done()
		return
	}
	reused := &reusedPorts{finder: f.reused, flows: f.flows, metrics: f.metrics, log: f.log}
	reused.free()
	kernelwatch.Poll(ctx, kernelwatch.Interval, func() bool { return true }, reused.free)
}

type reusedPorts struct {
	finder  *reusedports.Finder
	flows   *conntrackReconciler
	metrics *metrics
	log     *slog.Logger
	told    string // of a failure, to log a change only
}

func (r *reusedPorts) free() {
	found, err := r.finder.Find()
	for family, tuples := range found {
		stale, failed := r.flows.staleOf(family, tuples)
		if err = errors.Join(err, failed); failed != nil {
			continue
		}
		n, failed := conntrack.DeleteOf(family, tuples, stale)
		r.metrics.deleted(family, n)
		err = errors.Join(err, failed)
	}
	if err == nil {
		r.told = ""
	} else if err.Error() != r.told {
		r.told = err.Error()
		r.log.Error("connections from reused ports may hang", "error", err)
	}
}

// staleOf returns what tells which flows of these tuples lead to endpoints that serve no more, by what the kernel has.
// Those that no Service of ours translates are none. The error is that of listing the node's addresses.
func (c *conntrackReconciler) staleOf(family addr.Family, tuples []conntrack.Tuple) (func(view.Protocol, conntrack.Flow) bool, error) {
	own, err := readLocalAddresses()
	if err != nil {
		return nil, err
	}
	some := map[destination]struct{}{}
	for _, t := range tuples {
		some[destination{family, t.Protocol, t.To}] = struct{}{}
		some[nodePort(family, t.Protocol, t.To.Port())] = struct{}{}
	}
	c.Lock()
	maps.DeleteFunc(some, func(at destination, _ struct{}) bool { return len(c.at[at]) == 0 }) // those of no Service
	look := search{own: own, places: c.places, allowed: c.serving(maps.Keys(some))}
	c.Unlock()
	return func(protocol view.Protocol, flow conntrack.Flow) bool {
		endpoints, ours := look.allows(destination{family, protocol, flow.To})
		return ours && !slices.Contains(endpoints, flow.Answers)
	}, nil
}
