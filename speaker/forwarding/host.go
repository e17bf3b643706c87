package forwarding

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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

// hostWatch tells whether the kernel's routes, addresses or settings of forwarding have changed. Nothing runs for it: a
// socket keeps the kernel's notices until it is asked. The lock of its host guards it.
type hostWatch struct {
	fd   int
	open bool
	news bool // since they were taken
}

// listen begins to listen in the network namespace of the caller. The error is the kernel's.
func (w *hostWatch) listen() error {
	if w.open {
		return nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	var groups uint32
	for _, g := range []uint{
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	} {
		groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return err
	}
	w.fd, w.open, w.news = fd, true, true // what was before is not known
	return nil
}

// take is changed, and begins anew.
func (w *hostWatch) take() bool {
	news := w.changed()
	w.news = false
	return news
}

// changed reports whether anything has, since take returned true. While nothing is listened to, anything may have.
func (w *hostWatch) changed() bool {
	if !w.open {
		return true
	}
	var none [1]byte
	for {
		switch _, _, err := unix.Recvfrom(w.fd, none[:], unix.MSG_DONTWAIT); err {
		case nil, unix.ENOBUFS: // a notice, or more of them than there was room for
			w.news = true
		case unix.EINTR:
		default:
			return w.news
		}
	}
}

// localAddresses are those of the node: of its interfaces, and all that its routes deliver to itself.
type localAddresses struct {
	interfaces map[netip.Addr]bool
	routes     []netip.Prefix // of more than one address
}

// readLocalAddresses asks the kernel for them. The errors are the kernel's.
func readLocalAddresses() (*localAddresses, error) {
	own, err := ownAddresses()
	if err != nil {
		return nil, err
	}
	l := &localAddresses{interfaces: own}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("list the node's local routes: %w", err)
	}
	defer h.Close()
	if err := h.SetStrictCheck(true); err != nil { // so that the kernel tells of no other table, which may be large
		return nil, fmt.Errorf("list the node's local routes: %w", err)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		err := h.RouteListFilteredIter(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE, func(r netlink.Route) bool {
				l.take(r.Dst)
				return true
			})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("list the node's local routes: %w", err)
		}
	}
	return l, nil
}

func (l *localAddresses) take(to *net.IPNet) {
	if to == nil {
		return
	}
	a, _ := netip.AddrFromSlice(to.IP)
	ones, bits := to.Mask.Size()
	switch a = a.Unmap(); {
	case !a.IsValid() || a.IsLoopback():
	case ones == bits:
		l.interfaces[a] = true
	default:
		l.routes = append(l.routes, netip.PrefixFrom(a, ones))
	}
}

// have tells whether an address is the node's. Of loopback ones it has more than any interface lists.
func (l *localAddresses) have(a netip.Addr) bool {
	return l.interfaces[a] || a.IsLoopback() || within(l.routes, a)
}

// ownAddresses are those of the node's interfaces, loopback ones excepted.
func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, each := range all {
		if prefix, err := netip.ParsePrefix(each.String()); err == nil && !prefix.Addr().IsLoopback() {
			own[prefix.Addr()] = true
		}
	}
	return own, nil
}
