package nfnetlink

import (
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// Conn is for short questions that are asked again and again: a socket that stays open,
// since to open one takes longer than the question. The zero value opens it when it is
// needed. One goroutine at a time may use it.
type Conn struct{ socket *netlink.Conn }

// answerIn is how long the kernel is waited for, which answers before a question is sent. An
// answer that is lost must not have all wait.
const answerIn = 10 * time.Second

// Ask is Request over the socket, with the same errors.
func (c *Conn) Ask(subsystem, command, flags int, family addr.Family, body Attributes, f func(attributes []byte)) error {
	if c.socket == nil {
		socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return err
		}
		c.socket = socket
	}
	var answers []netlink.Message
	err := c.socket.SetReadDeadline(time.Now().Add(answerIn))
	if err == nil {
		answers, err = c.ask(subsystem, command, flags, family, body)
	}
	if err != nil {
		err = errors.Join(err, c.socket.Close()) // more answers may be left in it
		c.socket = nil
		return err
	}
	for _, answer := range answers {
		if answer.Header.Type != netlink.Done && answer.Header.Type != netlink.Error && len(answer.Data) >= nl.SizeofNfgenmsg {
			f(answer.Data[nl.SizeofNfgenmsg:])
		}
	}
	return nil
}

func (c *Conn) ask(subsystem, command, flags int, family addr.Family, body Attributes) ([]netlink.Message, error) {
	return c.socket.Execute(netlink.Message{
		Header: netlink.Header{
			Type: netlink.HeaderType(subsystem<<8 | command),
			// A receipt would stay in the socket. Refusals come without one, too.
			Flags: netlink.Request | netlink.HeaderFlags(flags)&^netlink.Acknowledge,
		},
		Data: append([]byte{Protocol(family), nl.NFNETLINK_V0, 0, 0}, body...),
	})
}
