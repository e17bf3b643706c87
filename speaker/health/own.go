package health

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
)

// ownAddresses returns the addresses of this node, link-local ones of IPv6 with the index of their interface as zone.
func ownAddresses() ([]netip.Addr, error) {
	snapshot, err := links.Read()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, l := range snapshot.All() {
		for _, p := range l.Prefixes {
			a := p.Addr()
			if a.Is6() && a.IsLinkLocalUnicast() {
				a = a.WithZone(strconv.Itoa(l.Index))
			}
			own = append(own, a)
		}
	}
	return own, nil
}

// locate finds out on which addresses to listen, and returns whether they have changed. They stay while this
// node's own addresses cannot be read.
func (c *checks) locate() (moved bool) {
	var own []netip.Addr
	if slices.ContainsFunc(c.prefixes, func(p netip.Prefix) bool { return p.Bits() > 0 }) {
		var err error
		if own, err = c.own(); err != nil {
			if text := err.Error(); text != c.unread {
				c.unread = text
				c.log.Error("healthCheckNodePorts answer where they did before; trying again to find out where NodePorts do", "error", err)
			}
			return false
		}
		c.unread = ""
	}
	addrs := desired.HealthAddrs(c.prefixes, own)
	moved = !slices.Equal(addrs, c.addrs)
	c.addrs = addrs
	return moved
}

// relocate listens on the addresses that this node has by now.
func (c *checks) relocate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.locate() {
		c.listen(maps.Clone(c.servers))
	}
}

// follow calls changed when this node's addresses are known, and after each change of them or of its
// interfaces, until ctx ends.
func follow(ctx context.Context, changed func(), log *slog.Logger) {
	watcher := links.NewWatcher(log)
	var watching sync.WaitGroup
	watching.Go(func() { _ = watcher.Run(ctx) }) // which logs errors and tries again
	defer watching.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watcher.Changed():
			changed()
		}
	}
}
