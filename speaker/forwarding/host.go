package forwarding

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/egress"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/outcome"
)

// host is what forwarding depends on of this host besides rules: its routes and addresses, and whether it forwards
// at all.
type host struct {
	watch  hostWatch
	routes func() (egress.Host, error)        // reads routes and addresses
	off    func(addr.Family, []string) string // see off

	mu      sync.Mutex
	reading kernelwatch.RateLimit
	known   bool
	is      egress.Host
	err     error // of the last reading
	own     []netip.Addr
	pods    []netip.Prefix
	outer   []string               // see outward
	has     map[addr.Family]bool   // see families
	asked   time.Time              // when the settings of forwarding were last
	why     map[addr.Family]string // see off
	sources []desired.Source
	failed  error // why some are left out

	links      desired.Links             // by which pods send, as Apply was told last
	clusterIPs map[addr.Family]clusterIP // one of each family
	revision   uint64                    // of what Apply was told last
}

// askAgain is after how long settings are read again though no notice says that they have changed.
const askAgain = 5 * time.Second

func newHost() *host {
	return &host{routes: egress.Read, off: off, reading: kernelwatch.NewRateLimit()}
}

// disturbed reports whether something of the host has changed, and may be read again.
func (h *host) disturbed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reading.Allowed() && h.known && h.watch.changed()
}

// sourcesOf returns what is masqueraded with which source address, beside a *outcome.SettingError if some are left out or
// routes cannot be read: then it is what it was before.
func (h *host) sourcesOf(want desired.Forwarding) ([]desired.Source, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.watch.changed()
	moved := h.renew() || !slices.Equal(h.own, want.Own) || !slices.Equal(h.pods, want.Pods)
	if moved {
		h.own, h.pods = want.Own, want.Pods
		h.sources, h.failed = h.is.Sources(want.Own, want.Pods)
		h.outer, h.has = h.outward(), h.families()
	}
	if news || moved || time.Since(h.asked) > askAgain { // to read them takes longer than all else of a pass that has nothing to do
		h.asked, h.why = time.Now(), map[addr.Family]string{}
		for _, family := range addr.Families() {
			h.why[family] = h.off(family, h.outer)
		}
	}
	if err := errors.Join(h.err, h.failed); err != nil {
		return h.sources, &outcome.SettingError{Of: "source addresses", Err: err}
	}
	return h.sources, nil
}

// renew reads routes and addresses again if they have changed, and reports whether it did.
func (h *host) renew() bool {
	if err := h.watch.listen(); err != nil && !h.known {
		h.err = fmt.Errorf("listen to changes of routes: %w", err)
	}
	if h.known && !h.reading.Allowed() || !h.watch.take() && h.known {
		return false
	}
	began := time.Now()
	is, err := h.routes()
	h.reading.Spend(time.Since(began))
	h.err, h.known = err, err == nil // else it is read again by the next Apply
	if err == nil {
		h.is = is
	}
	return err == nil
}
