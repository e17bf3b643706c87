package nfnetlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// Transaction is commands of a subsystem of which the kernel does all or none.
type Transaction struct {
	subsystem uint16
	family    addr.Family
	message   Attributes
	commands  uint32
}

// RefusedError says which command of a transaction the kernel refused first.
type RefusedError struct {
	Command int
	Err     unix.Errno
}

func (e *RefusedError) Error() string { return "the kernel refuses it: " + e.Err.Error() }

// Unwrap returns the kernel's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// NewTransaction begins one that will have about so many bytes.
func NewTransaction(subsystem int, family addr.Family, size int) *Transaction {
	t := &Transaction{subsystem: uint16(subsystem), family: family, message: make(Attributes, 0, size)}
	// Its header names the subsystem where others have a number of their own.
	t.command(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.NFPROTO_UNSPEC, t.subsystem, nil)
	return t
}

// Add appends a command with the attributes that body appends.
func (t *Transaction) Add(command, flags int, body func(Attributes) Attributes) {
	t.command(t.subsystem<<8|uint16(command), uint16(flags), Protocol(t.family), 0, body)
}

// Commands returns the number that the next command gets.
func (t *Transaction) Commands() int { return int(t.commands) }

// Size returns how many bytes the transaction has.
func (t *Transaction) Size() int { return len(t.message) }

func (t *Transaction) command(kind, flags uint16, protocol uint8, resource uint16, body func(Attributes) Attributes) {
	t.message = t.message.message(kind, flags, t.commands, protocol, resource, body)
	t.commands++
}

// Send has the kernel do it, once. It returns a *RefusedError about the first command that the kernel does
// not take, or an error of the socket.
func (t *Transaction) Send() error {
	t.command(unix.NFNL_MSG_BATCH_END, 0, unix.NFPROTO_UNSPEC, t.subsystem, nil)
	fd, err := dial()
	if err != nil {
		return err
	}
	defer release(func() { _ = unix.Close(fd) })
	// It must be one message, and so fit into the buffer.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*len(t.message)); err != nil {
		return fmt.Errorf("make room for a transaction of %d bytes: %w", len(t.message), err)
	}
	if err := unix.Sendto(fd, t.message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send a transaction of %d bytes: %w", len(t.message), err)
	}
	// The kernel says nothing of one that is done.
	var refused error
	err = receipts(fd, func(command uint32, errno unix.Errno) {
		if errno != 0 && refused == nil {
			refused = &RefusedError{int(command), errno}
		}
	})
	return errors.Join(refused, err)
}
