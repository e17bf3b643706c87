package nftables

import (
	"errors"
	"fmt"
	"slices"

	nft "github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// errRecorded stands for the kernel's receipts.
var errRecorded = errors.New("recorded and not sent")

// record is what the library would send. It is not left to send it: it makes tables without
// flags, and waits for a receipt of each message, which never comes where the kernel refuses a
// transaction as a whole.
func record(compose func(b *batch)) ([]netlink.Message, error) {
	var all []netlink.Message
	conn, err := nft.New(nft.WithTestDial(func(batch []netlink.Message) ([]netlink.Message, error) {
		if len(batch) > 0 {
			all = batch[1 : len(batch)-1] // without what begins and ends it
		}
		return nil, errRecorded
	}))
	if err != nil {
		return nil, fmt.Errorf("compose a transaction of nf_tables: %w", err)
	}
	b := &batch{conn: conn}
	compose(b)
	if err := conn.Flush(); err != nil && !errors.Is(err, errRecorded) {
		b.note(err)
	}
	for i := range all {
		h := &all[i].Header
		*h = netlink.Header{Type: h.Type, Flags: h.Flags &^ unix.NLM_F_ECHO}
	}
	if b.err != nil {
		return nil, fmt.Errorf("compose a transaction of nf_tables: %w", b.err)
	}
	return all, nil
}

// transact sends messages as one transaction over the socket: all of it comes true, or
// nothing.
func (k *link) transact(messages ...netlink.Message) error {
	if len(messages) == 0 {
		return nil
	}
	begin, end := frame(unix.NFNL_MSG_BATCH_BEGIN), frame(unix.NFNL_MSG_BATCH_END)
	return k.generation.Write(func() (commits int, err error) {
		if err := k.exchange(slices.Concat([]netlink.Message{begin}, messages, []netlink.Message{end})); err != nil {
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
func (k *link) exchange(batch []netlink.Message) error {
	if err := k.open(); err != nil {
		return err
	}
	_, err := k.socket.SendMessages(batch)
	if err != nil {
		k.close()
		return fmt.Errorf("change nf_tables: %w", err)
	}
	if err := k.receipts(len(batch) - 2); err != nil {
		return fmt.Errorf("change nf_tables: %w", held(err))
	}
	return nil
}

// receipts reads what the kernel says of so many messages, until it says no more.
func (k *link) receipts(of int) error {
	raw, err := k.socket.SyscallConn()
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
