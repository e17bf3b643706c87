package forwarding

import "golang.org/x/sys/unix"

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
