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

// notice is a message of the kernel about a link, listed or changed.
type notice struct {
	link    netlink.Link
	deleted bool
	family  uint8
	// carriers counts how often the link got its carrier. The library leaves it out, which is why
	// links are read here.
	carriers uint32
}

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

// ask lists what the kernel has of a kind: a request of one type is answered by messages of another type.
func ask[N any](question int, about nl.NetlinkRequestData, answer uint16, read func(syscall.NlMsghdr, []byte) (N, error)) ([]N, error) {
	request := nl.NewNetlinkRequest(question, unix.NLM_F_DUMP)
	request.AddData(about)
	messages, err := request.Execute(unix.NETLINK_ROUTE, answer)
	if err != nil {
		return nil, err
	}
	all := make([]N, 0, len(messages))
	for _, m := range messages {
		n, err := read(syscall.NlMsghdr{Type: answer}, m)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// change is a notice about a link, or about an address of one. Both come by one socket, which keeps their
// order: the index of a link that is gone may be that of another one with addresses of its own.
type change struct {
	link    *notice
	address *addressNotice
	err     error // the subscription has broken off
}

// readChange decodes a notice of the kernel; one about other things gives an empty change.
func readChange(header syscall.NlMsghdr, message []byte) (change, error) {
	switch header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		n, err := read(header, message)
		return change{link: &n}, err
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		n, err := readAddress(header, message)
		return change{address: &n}, err
	}
	return change{}, nil
}

// subscribe has all changes sent to the channel, until done is closed or notices have overflowed the buffer. The
// last one has the error, and the channel is closed then.
func subscribe(changes chan<- change, done <-chan struct{}, buffer int) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
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
		defer close(changes)
		for {
			messages, from, err := socket.Receive()
			if err != nil {
				changes <- change{err: fmt.Errorf("receive notices: %w", err)}
				return
			}
			if from.Pid != nl.PidKernel {
				continue // another process of this node may send to our socket
			}
			for _, m := range messages {
				c, err := readChange(m.Header, m.Data)
				if err != nil {
					changes <- change{err: fmt.Errorf("read a notice: %w", err)}
					return
				}
				changes <- c
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

// forgetUnanswered has the kernel forget the neighbours on a link that did not answer. While a cable is out,
// the kernel tries to resolve destinations once a second; when the cable is in again, packets to them wait for
// the next try: hellos to other nodes and answers to clients, for most of a second. A forgotten neighbour is
// resolved at once.
func forgetUnanswered(index int) error {
	var failed []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		all, err := netlink.NeighList(index, family)
		if err != nil {
			return fmt.Errorf("list the neighbours on link %d: %w", index, err)
		}
		for _, n := range all {
			if n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 {
				continue
			}
			// One that has answered meanwhile is asked again: that costs a question.
			if err := netlink.NeighDel(&netlink.Neigh{LinkIndex: index, IP: n.IP}); err != nil && !errors.Is(err, unix.ENOENT) {
				failed = append(failed, fmt.Errorf("forget neighbour %s on link %d: %w", n.IP, index, err))
			}
		}
	}
	return errors.Join(failed...)
}
