package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// notice is what the kernel tells of a link, be it asked or because something changed.
type notice struct {
	link    netlink.Link
	deleted bool
	family  uint8
	// carriers counts how often the link got its carrier. The library leaves it out, which is why
	// links are read here.
	carriers uint32
}

// read decodes a message of the kernel about a link.
func read(header syscall.NlMsghdr, message []byte) (notice, error) {
	raw := unix.NlMsghdr(header)
	link, err := netlink.LinkDeserialize(&raw, message)
	if err != nil {
		return notice{}, err
	}
	info := nl.DeserializeIfInfomsg(message)
	n := notice{link: link, deleted: header.Type == unix.RTM_DELLINK, family: info.Family}
	attrs, err := nl.ParseRouteAttr(message[info.Len():])
	if err != nil {
		return notice{}, err
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_CARRIER_UP_COUNT && len(a.Value) >= 4 {
			n.carriers = binary.NativeEndian.Uint32(a.Value)
		}
	}
	return n, nil
}

// ask lists all links.
func ask() ([]notice, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, err
	}
	all := make([]notice, 0, len(messages))
	for _, m := range messages {
		n, err := read(syscall.NlMsghdr{Type: unix.RTM_NEWLINK}, m)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// subscribe has notices about links sent to the channel, until done is closed or the kernel has sent
// more than there was room for. The channel is closed then, and failed was told why.
func subscribe(notices chan<- notice, done <-chan struct{}, buffer int, failed func(error)) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return err
	}
	err = forced(func(force bool) error { return socket.SetReceiveBufferSize(buffer, force) })
	if err != nil {
		socket.Close()
		return err
	}
	go func() {
		<-done
		socket.Close()
	}()
	go func() {
		defer close(notices)
		for {
			messages, from, err := socket.Receive()
			if err != nil {
				failed(fmt.Errorf("receive notices about links: %w", err))
				return
			}
			if from.Pid != nl.PidKernel {
				continue // another process of this node may send to our socket
			}
			for _, m := range messages {
				if m.Header.Type != unix.RTM_NEWLINK && m.Header.Type != unix.RTM_DELLINK {
					continue
				}
				n, err := read(m.Header, m.Data)
				if err != nil {
					failed(fmt.Errorf("read a notice about a link: %w", err))
					return
				}
				notices <- n
			}
		}
	}()
	return nil
}

// forced does what exceeds the limits of the system, which needs CAP_NET_ADMIN, or else what they allow.
func forced(do func(force bool) error) error {
	if err := do(true); !errors.Is(err, unix.EPERM) {
		return err
	}
	return do(false)
}
