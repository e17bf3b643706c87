// Package nfnetlink talks to netfilter in the kernel over netlink: it sends requests,
// repeats them if an answer was interrupted, and writes and reads attributes.
package nfnetlink

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// Inet stands for what is of both families at once.
const Inet addr.Family = 46

// Protocol is the kernel's number of a family, that of none for 0.
func Protocol(family addr.Family) uint8 {
	switch family {
	case addr.IPv4:
		return unix.NFPROTO_IPV4
	case addr.IPv6:
		return unix.NFPROTO_IPV6
	case Inet:
		return unix.NFPROTO_INET
	default:
		return unix.NFPROTO_UNSPEC
	}
}

// Request is Conn.Request over a socket of its own, with the same errors.
func Request(subsystem, command, flags int, family addr.Family, body Attributes, f func(attributes []byte)) error {
	var c Conn
	defer release(c.close)
	return c.Request(subsystem, command, flags, family, body, f)
}

// Stream is Conn.Stream over a socket of its own, with the same errors.
func Stream(subsystem, command, flags int, family addr.Family, body Attributes, begin func(), f func(attributes []byte)) error {
	var c Conn
	defer release(c.close)
	return c.Stream(subsystem, command, flags, family, body, begin, f)
}

// Lingering is for how long a socket that is not needed any more is better left open. The
// kernel does not close one of netfilter before it has destroyed what transactions of
// nf_tables have taken away, which it puts off until no CPU can be looking at it: tens of
// milliseconds, for which close would wait, and the next transaction, too.
const Lingering = 200 * time.Millisecond

// release calls what closes a socket, later.
func release(socket func()) { time.AfterFunc(Lingering, socket) }

// Settle waits until the kernel has destroyed what transactions of nf_tables have taken away, as far as it does
// before it closes a socket.
func Settle() {
	if fd, err := dial(); err == nil {
		_ = unix.Close(fd)
	}
}

// dial opens a socket with an address: at the close of one without, the kernel would not wait.
func dial() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Batch sends a command for each of the bodies, many in one message, and returns how many
// succeeded. The error joins the unix.Errno of those that did not, unless it is excused.
func Batch(subsystem, command, flags int, family addr.Family, bodies []Attributes, excuse func(unix.Errno) bool) (done int, err error) {
	fd, err := dial()
	if err != nil {
		return 0, err
	}
	defer release(func() { _ = unix.Close(fd) })
	var errs []error
	for some := range slices.Chunk(bodies, batch) {
		var messages Attributes
		for _, body := range some {
			messages = messages.message(uint16(subsystem<<8|command), uint16(flags), 0, Protocol(family), 0, func(a Attributes) Attributes {
				return append(a, body...)
			})
		}
		// The kernel has done all of it when this returns, and says what failed only.
		if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			errs = append(errs, err)
			continue
		}
		failed, err := failures(fd, excuse)
		done += len(some) - failed
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

// batch is how many commands go into one message; what the kernel says about as many
// fits into the buffer of a socket.
const batch = 100

// failures counts what failed, and returns what of it is not excused.
func failures(fd int, excuse func(unix.Errno) bool) (int, error) {
	count := 0
	var errs []error
	err := Receipts(fd, func(errno unix.Errno) {
		if errno == 0 {
			return
		}
		count++
		if !excuse(errno) {
			errs = append(errs, errno)
		}
	})
	return count, errors.Join(append(errs, err)...)
}

// Receipts calls f for each receipt that is in a socket, with what went wrong or 0, and ends
// when there are no more: when a message to netfilter is sent, the kernel has done all of it
// and said what it has to say. The error is ENOBUFS if the socket had no room for some of them.
func Receipts(fd int, f func(unix.Errno)) error {
	return receipts(fd, func(_ uint32, errno unix.Errno) { f(errno) })
}

// receipts is Receipts with the sequence number of what each receipt is for.
func receipts(fd int, f func(sequence uint32, errno unix.Errno)) error {
	buffer := make([]byte, 1<<16)
	var lost error
	for {
		n, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return lost
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS): // the rest is still there
			lost = err
			continue
		case err != nil:
			return err
		}
		eachReceipt(buffer[:n], f)
	}
}

// eachReceipt calls f for each receipt, up to the first message that is not whole.
func eachReceipt(said []byte, f func(sequence uint32, errno unix.Errno)) {
	eachMessage(said, func(m message) bool {
		if m.kind == unix.NLMSG_ERROR && len(m.body) >= 4 {
			f(m.sequence, m.errno())
		}
		return true
	})
}

// Again tells whether an error is gone when the same is asked again.
func Again(err error) bool {
	return errors.Is(err, nl.ErrDumpInterrupted) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS)
}

// Attributes are netlink attributes in their wire form, to be sent.
type Attributes []byte

// Add appends one.
func (a Attributes) Add(kind uint16, value ...byte) Attributes {
	in, at := a.open(kind)
	return append(in, value...).Close(at)
}

// Uint16 appends a number in network byte order.
func (a Attributes) Uint16(kind, v uint16) Attributes { return a.Add(kind, byte(v>>8), byte(v)) }

// Uint32 appends a number in network byte order.
func (a Attributes) Uint32(kind uint16, v uint32) Attributes {
	return a.Add(kind, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// Text appends a text that ends in a zero byte.
func (a Attributes) Text(kind uint16, v string) Attributes {
	in, at := a.open(kind)
	return append(append(in, v...), 0).Close(at)
}

// Nested appends attributes as one.
func (a Attributes) Nested(kind uint16, v Attributes) Attributes {
	return a.Add(kind|unix.NLA_F_NESTED, v...)
}

// Open begins an attribute that holds those which are appended until it is closed.
func (a Attributes) Open(kind uint16) (in Attributes, at int) {
	return a.open(kind | unix.NLA_F_NESTED)
}

func (a Attributes) open(kind uint16) (in Attributes, at int) {
	in = binary.NativeEndian.AppendUint16(a, 0) // how long it is, see Close
	return binary.NativeEndian.AppendUint16(in, kind), len(a)
}

// Close ends the attribute that was begun there. The next one begins at a multiple of 4.
func (a Attributes) Close(at int) Attributes {
	size := len(a) - at
	binary.NativeEndian.PutUint16(a[at:], uint16(size))
	return append(a, "\x00\x00\x00"[:-size&3]...)
}

// message appends a message of netfilter, with the attributes that body appends if it is not nil.
func (a Attributes) message(kind, flags uint16, sequence uint32, protocol uint8, resource uint16, body func(Attributes) Attributes) Attributes {
	at := len(a)
	a = binary.NativeEndian.AppendUint32(a, 0) // how long it is, see below
	a = binary.NativeEndian.AppendUint16(a, kind)
	a = binary.NativeEndian.AppendUint16(a, unix.NLM_F_REQUEST|flags)
	a = binary.NativeEndian.AppendUint32(a, sequence)
	a = append(a, 0, 0, 0, 0, protocol, unix.NFNETLINK_V0)
	a = binary.BigEndian.AppendUint16(a, resource)
	if body != nil {
		a = body(a)
	}
	binary.NativeEndian.PutUint32(a[at:], uint32(len(a)-at))
	return a
}

// Each calls f for each attribute, its kind without flags. It ends at the first one
// that is not whole.
func Each(attributes []byte, f func(kind uint16, value []byte)) {
	for len(attributes) >= 4 {
		size := int(binary.NativeEndian.Uint16(attributes))
		if size < 4 || size > len(attributes) {
			return
		}
		kind := binary.NativeEndian.Uint16(attributes[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		f(kind, attributes[4:size])
		attributes = attributes[min((size+3)&^3, len(attributes)):]
	}
}

// Find is the value of an attribute, by the kinds that lead to it, nil if there is
// none.
func Find(attributes []byte, path ...uint16) []byte {
	for _, want := range path {
		var value []byte
		Each(attributes, func(kind uint16, v []byte) {
			if kind == want {
				value = v
			}
		})
		attributes = value
	}
	return attributes
}

// Text is the value of an attribute that holds a text, "" if there is none.
func Text(attributes []byte, path ...uint16) string {
	return unix.ByteSliceToString(Find(attributes, path...))
}

// Number is the value of an attribute of one, two or four bytes in network byte order.
func Number(attributes []byte, path ...uint16) (n uint32, ok bool) {
	value := Find(attributes, path...)
	for _, b := range value[:min(len(value), 4)] {
		n = n<<8 | uint32(b)
	}
	return n, value != nil
}
