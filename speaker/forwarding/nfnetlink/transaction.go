package nfnetlink

import (
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

// NewTransaction begins one that is about so many bytes long.
func NewTransaction(subsystem int, family addr.Family, size int) *Transaction {
	t := &Transaction{subsystem: uint16(subsystem), family: family, message: make(Attributes, 0, size+size/8)}
	t.Reset()
	return t
}

// Reset begins another one, in the same place.
func (t *Transaction) Reset() {
	t.message, t.commands = t.message[:0], 0
	// Its header names the subsystem where others have a number of their own.
	t.command(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.NFPROTO_UNSPEC, t.subsystem, nil)
}

// Add appends a command with the attributes that body appends.
func (t *Transaction) Add(command, flags int, body func(Attributes) Attributes) {
	t.command(t.subsystem<<8|uint16(command), uint16(flags), Protocol(t.family), 0, body)
}

// Size is how long the transaction is.
func (t *Transaction) Size() int { return len(t.message) }

func (t *Transaction) command(kind, flags uint16, protocol uint8, resource uint16, body func(Attributes) Attributes) {
	t.message = t.message.message(kind, flags, t.commands, protocol, resource, body)
	t.commands++
}

// Send has the kernel do it while the caller does something else: wait returns once it
// has. Until then the transaction must be left alone. The error wraps what the kernel minds in the
// commands that it does not take.
func (t *Transaction) Send() (wait func() error) {
	t.command(unix.NFNL_MSG_BATCH_END, 0, unix.NFPROTO_UNSPEC, t.subsystem, nil)
	fd, err := t.open() // here: a socket is of the network namespace of the thread that opens it
	if err != nil {
		return func() error { return err }
	}
	done := make(chan error, 1)
	go func() {
		defer release(func() { _ = unix.Close(fd) })
		done <- t.deliver(fd)
	}()
	return func() error { return <-done }
}

// open opens a socket that the transaction fits into, which it must as one message.
func (t *Transaction) open() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, err
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*len(t.message)); err != nil {
		err = fmt.Errorf("make room for a transaction of %d bytes: %w", len(t.message), err)
	} else {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

func (t *Transaction) deliver(fd int) error {
	if err := unix.Sendto(fd, t.message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send a transaction of %d bytes: %w", len(t.message), err)
	}
	// Of one that is done it says nothing.
	_, err := failures(fd, func(unix.Errno) bool { return false })
	return err
}
