package nfnetlink

import (
	"encoding/binary"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// Conn is a socket that stays open, for what is asked again and again: to open and to close one takes longer than
// a short question. The zero value opens it when it is needed. One goroutine at a time may use it.
type Conn struct {
	file     *os.File // closes the socket when the Conn is garbage, too
	sequence uint32
	request  Attributes
	answers  []byte
}

const (
	// attempts is how often a listing is asked for that changes keep interrupting.
	attempts = 5
	// answerIn is how many seconds the kernel is waited for, which answers before a request is sent. An
	// answer that is lost must not have all wait.
	answerIn = 10
	// room is more than the kernel puts into one answer to read.
	room = 1 << 16
)

// Request sends one command of a subsystem and calls f with the attributes of each
// answer, once all of them have come. The error wraps the kernel's unix.Errno.
func (c *Conn) Request(subsystem, command, flags int, family addr.Family, body Attributes, f func(attributes []byte)) error {
	var answers [][]byte
	err := c.Stream(subsystem, command, flags, family, body, func() { answers = nil }, func(attributes []byte) {
		answers = append(answers, append([]byte(nil), attributes...))
	})
	if err != nil {
		return err
	}
	for _, answer := range answers {
		f(answer)
	}
	return nil
}

// Stream is Request for long listings: f gets the answers as they come, from the first
// one on after each call of begin. They are not valid after f. The errors are those
// of Request.
func (c *Conn) Stream(subsystem, command, flags int, family addr.Family, body Attributes, begin func(), f func(attributes []byte)) error {
	for left := attempts; ; left-- {
		begin()
		err := c.exchange(uint16(subsystem<<8|command), uint16(flags), Protocol(family), body, f)
		if left > 1 && Again(err) {
			continue
		}
		return err
	}
}

// exchange sends a request and reads up to the last answer.
func (c *Conn) exchange(kind, flags uint16, protocol uint8, body Attributes, f func(attributes []byte)) error {
	if err := c.open(); err != nil {
		return err
	}
	c.sequence++
	c.request = c.request[:0].message(kind, flags, c.sequence, protocol, 0, func(a Attributes) Attributes { return append(a, body...) })
	if _, err := c.file.Write(c.request); err != nil {
		c.close()
		return err
	}
	r := reply{sequence: c.sequence, receipt: flags&unix.NLM_F_ACK != 0, f: f}
	for !r.over {
		n, err := c.file.Read(c.answers)
		if err != nil {
			c.close() // a listing is under way in it
			return err
		}
		eachMessage(c.answers[:n], r.read)
	}
	return r.result
}

// open opens the socket, if it is not open.
func (c *Conn) open() error {
	if c.file != nil {
		return nil
	}
	fd, err := dial()
	if err != nil {
		return err
	}
	c.file = os.NewFile(uintptr(fd), "netfilter")
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerIn}); err != nil {
		c.close()
		return err
	}
	if c.answers == nil {
		c.answers = make([]byte, room)
	}
	return nil
}

func (c *Conn) close() {
	if c.file != nil {
		_ = c.file.Close()
		c.file = nil
	}
}

// reply is the answers to one request.
type reply struct {
	sequence    uint32
	receipt     bool // one was asked for, and ends what is no listing
	interrupted bool // changes interrupted the listing
	f           func(attributes []byte)

	over   bool
	result error
}

// read reads a message, and tells whether more are to come.
func (r *reply) read(m message) (more bool) {
	if m.sequence != r.sequence {
		return true // of a request that was given up
	}
	listing := m.flags&unix.NLM_F_MULTI != 0
	r.interrupted = r.interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
	switch m.kind {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		r.over = true
		if errno := m.errno(); errno != 0 {
			r.result = errno
		} else if r.interrupted {
			r.result = nl.ErrDumpInterrupted
		}
	default:
		if len(m.body) >= nl.SizeofNfgenmsg {
			r.f(m.body[nl.SizeofNfgenmsg:])
		}
		r.over = !listing && !r.receipt
	}
	return !r.over
}

// message is one of netlink.
type message struct {
	kind, flags uint16
	sequence    uint32
	body        []byte
}

// errno is what went wrong, or 0, of a message that ends others.
func (m message) errno() unix.Errno {
	if len(m.body) < 4 {
		return 0
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
}

// eachMessage calls f for each message while it asks for more, up to the first one that is not whole.
func eachMessage(said []byte, f func(message) (more bool)) {
	for len(said) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(said))
		if size < unix.SizeofNlMsghdr || size > len(said) {
			return
		}
		m := message{binary.NativeEndian.Uint16(said[4:]), binary.NativeEndian.Uint16(said[6:]), binary.NativeEndian.Uint32(said[8:]), said[unix.SizeofNlMsghdr:size]}
		if !f(m) {
			return
		}
		said = said[min((size+3)&^3, len(said)):]
	}
}
