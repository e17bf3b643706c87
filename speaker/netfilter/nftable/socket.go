// Package nftable writes and reads a table of nf_tables: it composes transactions, sends them, and tells
// whether the rules in the kernel are those that were sent.
package nftable

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Socket is the socket to nf_tables. It is opened when it is needed.
type Socket struct {
	// Generation is that in which the socket's transactions are ours.
	Generation *kernelwatch.Generation
	conn       *netlink.Conn
}

// NewSocket returns a socket that is not open yet. All that writes to nf_tables in a process shares the
// generation; nil: nothing else does.
func NewSocket(g *kernelwatch.Generation) *Socket {
	return &Socket{Generation: cmp.Or(g, new(kernelwatch.Generation))}
}

const (
	// writeBuffer must hold a whole transaction, and readBuffer its receipts. The
	// kernel takes memory for what is there only.
	writeBuffer = 256 << 20
	readBuffer  = 16 << 20
)

// Conn returns the connection; nil while the socket is closed.
func (s *Socket) Conn() *netlink.Conn { return s.conn }

func (s *Socket) open() error {
	if s.conn != nil {
		return nil
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("open a socket to nf_tables: %w", err)
	}
	if err := errors.Join(conn.SetWriteBuffer(writeBuffer), conn.SetReadBuffer(readBuffer),
		conn.SetOption(netlink.CapAcknowledge, true)); err != nil {
		return errors.Join(fmt.Errorf("make room in a socket to nf_tables: %w", err), conn.Close())
	}
	s.conn = conn
	return nil
}

// Close closes the socket. The next transaction opens it again.
func (s *Socket) Close() {
	if s.conn != nil {
		_ = s.conn.Close() // nothing is on its way
		s.conn = nil
	}
}

// Commit sends one transaction that the function composes: all of it comes true, or
// nothing. The errors are the kernel's.
func (s *Socket) Commit(compose func(b *Batch)) error {
	messages, err := Record(compose)
	if err != nil {
		return err
	}
	return s.Transact(messages...)
}

// Transact sends messages as one transaction over the socket: all of it comes true, or
// nothing. The errors are the kernel's.
func (s *Socket) Transact(messages ...netlink.Message) error {
	if len(messages) == 0 {
		return nil
	}
	begin, end := frame(unix.NFNL_MSG_BATCH_BEGIN), frame(unix.NFNL_MSG_BATCH_END)
	return s.Generation.Write(func() (commits int, err error) {
		if err := s.exchange(slices.Concat([]netlink.Message{begin}, messages, []netlink.Message{end})); err != nil {
			return 0, err
		}
		return 1, nil
	})
}

func frame(kind netlink.HeaderType) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: kind, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
	}
}

// errNoReceipt says that the kernel did not tell of each message what became of it, and of
// none that it refused it.
var errNoReceipt = errors.New("the kernel has not told what became of all of it")

// exchange sends a transaction with all that frames it. It never waits: when a message of
// netfilter is sent, the kernel has done all of it and said what it has to say, be it much or
// little. It says less where it refuses a transaction before it looks into it, or where the
// socket has no room, and more where it fails at the end. So the socket is emptied each time.
func (s *Socket) exchange(batch []netlink.Message) error {
	if err := s.open(); err != nil {
		return err
	}
	_, err := s.conn.SendMessages(batch)
	if err != nil {
		s.Close()
		return fmt.Errorf("change nf_tables: %w", err)
	}
	if err := s.receipts(len(batch) - 2); err != nil {
		return fmt.Errorf("change nf_tables: %w", held(err))
	}
	return nil
}

// held explains why others' tables cannot be changed.
func held(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: another process on this node owns the table, as a speaker that still runs: it must end first", err)
	}
	return err
}

// receipts reads what the kernel says of so many messages, until it says no more.
func (s *Socket) receipts(of int) error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var said []error
	received := 0
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = nfnetlink.Receipts(int(fd), func(errno unix.Errno) {
			received++
			if errno != 0 && !slices.Contains(said, error(errno)) {
				said = append(said, errno)
			}
		})
	})
	if errors.Is(failed, unix.ENOBUFS) { // of what is lost too few are left, see below
		failed = nil
	}
	switch {
	case err != nil || failed != nil:
		return errors.Join(err, failed)
	case len(said) > 0:
		return errors.Join(said...)
	case received < of:
		return errNoReceipt
	}
	return nil
}

// Remove removes the tables of a name from this network namespace. The errors are the kernel's.
func Remove(name string) error {
	s := NewSocket(nil)
	defer s.Close()
	var errs []error
	for _, f := range addr.Families() {
		t := New(f, name)
		there, _, err := t.Look()
		if there {
			err = s.Commit(func(b *Batch) { b.Conn.DelTable(t.NFT) })
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
