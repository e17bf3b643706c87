package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

const (
	bridge = "br0"  // the LAN's switch, in its own namespace
	uplink = "eth0" // the LAN link of every machine
)

// createLAN makes the switch. Its own address is every machine's default
// gateway, which forwards nothing.
func createLAN() error {
	lan := namespaceOf(lanName)
	if err := lan.create(); err != nil {
		return err
	}
	err := lan.links(func(h *netlink.Handle) error {
		if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}); err != nil {
			return fmt.Errorf("add bridge %s: %w", bridge, err)
		}
		return configure(h, bridge, gatewayAddresses().in(addr.Families()))
	})
	if err != nil {
		return err
	}
	// The switch must pass frames, not filter packets.
	return lan.sysctl("0", "bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables")
}

// joinLAN makes a machine's namespace and plugs it into the switch, with its addresses of those families. The port on
// the switch has the machine's name.
func joinLAN(machine string, addrs addresses, families []addr.Family) error {
	ns := namespaceOf(machine)
	if err := ns.create(); err != nil {
		return err
	}
	err := ns.sysctl("0", "ipv6/conf/all/accept_dad", "ipv6/conf/default/accept_dad", "ipv6/conf/default/accept_ra",
		// A node that boots has no route to its pods for a moment, and redirects their
		// peers to the gateway, which they would remember for five minutes.
		"ipv4/conf/all/accept_redirects", "ipv4/conf/default/accept_redirects",
		"ipv6/conf/all/accept_redirects", "ipv6/conf/default/accept_redirects")
	if err != nil {
		return err
	}
	if err := addPort(machine, ns, uplink, addrs.mac()); err != nil {
		return err
	}
	return ns.links(func(h *netlink.Handle) error {
		if err := configure(h, uplink, addrs.in(families)); err != nil {
			return err
		}
		routes := []netip.Prefix{clientRange4(), clientRange6()}
		if addrs == clientAddresses() {
			routes = []netip.Prefix{lanRange4(), lanRange6()}
		}
		for _, dst := range ofFamilies(families, routes...) {
			if err := addRoute(h, dst, netip.Addr{}); err != nil {
				return err
			}
		}
		for _, gateway := range gatewayAddresses().in(families) {
			if err := addRoute(h, netip.PrefixFrom(gateway.Addr(), 0).Masked(), gateway.Addr()); err != nil {
				return err
			}
		}
		return nil
	})
}

// addPort adds the pair of links between the switch and a machine, without a hardware address
// one with a random one.
func addPort(name string, ns namespace, link string, mac net.HardwareAddr) error {
	return ns.links(func(in *netlink.Handle) error {
		return namespaceOf(lanName).links(func(lan *netlink.Handle) error {
			br, err := lan.LinkByName(bridge)
			if err != nil {
				return err
			}
			fd, err := unix.Open(ns.path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MasterIndex = name, br.Attrs().Index
			port := &netlink.Veth{LinkAttrs: attrs, PeerName: link, PeerNamespace: netlink.NsFd(fd), PeerHardwareAddr: mac}
			if err := lan.LinkAdd(port); err != nil {
				return fmt.Errorf("plug in %s: %w", name, err)
			}
			return errors.Join(setUp(lan, name), setUp(in, link))
		})
	})
}

// removePort takes a machine's port off the switch, both ends.
func removePort(machine string) error {
	return namespaceOf(lanName).links(func(h *netlink.Handle) error {
		port, err := h.LinkByName(machine)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return err
		}
		return h.LinkDel(port)
	})
}

// setPort puts a machine's port on the switch up or down. Down, the machine
// sees no carrier, as with its cable pulled.
func setPort(machine string, up bool) error {
	return namespaceOf(lanName).links(func(h *netlink.Handle) error {
		port, err := h.LinkByName(machine)
		if err != nil {
			return fmt.Errorf("port of %s: %w", machine, err)
		}
		if up {
			return h.LinkSetUp(port)
		}
		return h.LinkSetDown(port)
	})
}

// routePods adds routes to the pods of every node but the one numbered except, in those families.
func routePods(machine string, nodes, except int, families ...addr.Family) error {
	return namespaceOf(machine).links(func(h *netlink.Handle) error {
		for n := range nodes {
			if n+1 == except {
				continue
			}
			pods, node := podRanges(n+1).in(families), nodeAddresses(n+1).in(families)
			for i := range pods {
				if err := addRoute(h, pods[i], node[i].Addr()); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// configure puts a link up and gives it its addresses, usable at once.
func configure(h *netlink.Handle, link string, addrs []netip.Prefix) error {
	l, err := h.LinkByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	if err := h.LinkSetUp(l); err != nil {
		return err
	}
	for _, p := range addrs {
		a := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(l, a); err != nil {
			return fmt.Errorf("add %s to %s: %w", p, link, err)
		}
	}
	return nil
}

// addRoute adds a route over the LAN link; with no gateway dst is on the link.
func addRoute(h *netlink.Handle, dst netip.Prefix, via netip.Addr) error {
	l, err := h.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("link %s: %w", uplink, err)
	}
	route := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(dst)}
	if via.IsValid() {
		route.Gw = via.AsSlice()
	} else if dst.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	if err := h.RouteAdd(route); err != nil {
		return fmt.Errorf("add route to %s: %w", dst, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
