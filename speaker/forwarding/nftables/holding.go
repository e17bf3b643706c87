package nftables

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// Flags of a table (linux/netfilter/nf_tables.h). The kernel changes one that has an owner
// over the owner's socket alone, and what others flush does not concern it (Linux 5.12). One
// that persists is nobody's when that socket closes, as when the process ends, and the next
// process may own it (Linux 6.9). Whether a table persists is settled when it is made.
const (
	tableDormant uint32 = 1 << iota
	tableOwner
	tablePersist
)

// persistence finds out whether the kernel knows tables that persist.
func (k *link) persistence(l *layout) {
	probe := l.as(probeTable)
	k.persists = k.transact(probe.tableMessage(unix.NFT_MSG_NEWTABLE, tableOwner|tablePersist), probe.tableMessage(unix.NFT_MSG_DELTABLE, 0)) == nil
}

// declare makes a table that persists, if it is not there, and wakes it if it sleeps.
func (k *link) declare(l *layout) error {
	flags := tablePersist
	if k.holds(l) {
		flags |= tableOwner
	}
	return k.transact(l.tableMessage(unix.NFT_MSG_NEWTABLE, flags))
}

// own makes a table that persists this socket's own, until that is closed.
func (k *link) own(l *layout) error {
	err := k.transact(l.tableMessage(unix.NFT_MSG_NEWTABLE, tableOwner|tablePersist))
	if err == nil {
		k.owned[l.family] = true
	}
	return err
}

// holds tells whether nobody else can change the table.
func (k *link) holds(l *layout) bool { return k.conn != nil && k.owned[l.family] }

// tableMessage is a message about the table itself, for which the library has no flags.
func (l *layout) tableMessage(command int, flags uint32) netlink.Message {
	body := append([]byte{nfnetlink.Protocol(l.family), unix.NFNETLINK_V0, 0, 0}, l.ofTable()...)
	if flags != 0 {
		body = append(body, nfnetlink.Attributes{}.Uint32(unix.NFTA_TABLE_FLAGS, flags)...)
	}
	header := netlink.Header{
		Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | command),
		Flags: netlink.Request | netlink.Acknowledge,
	}
	if command == unix.NFT_MSG_NEWTABLE {
		header.Flags |= netlink.Create
	}
	return netlink.Message{Header: header, Data: body}
}

// transact sends messages as one transaction over the socket.
func (k *link) transact(messages ...netlink.Message) error {
	if _, err := k.open(); err != nil {
		return err
	}
	frame := func(kind netlink.HeaderType) netlink.Message {
		return netlink.Message{
			Header: netlink.Header{Type: kind, Flags: netlink.Request},
			Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
		}
	}
	batch := append([]netlink.Message{frame(unix.NFNL_MSG_BATCH_BEGIN)}, messages...)
	if _, err := k.socket.SendMessages(append(batch, frame(unix.NFNL_MSG_BATCH_END))); err != nil {
		k.close()
		return fmt.Errorf("change a table of nf_tables: %w", err)
	}
	var errs []error
	for range messages {
		_, err := k.socket.Receive()
		if said := unix.Errno(0); err != nil && !errors.As(err, &said) {
			k.close() // the rest of its answers may never come
			return fmt.Errorf("change a table of nf_tables: %w", err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// renew prepares the table for all that is always there to be made anew, and returns what
// takes out of the way, in the same transaction, what it has. It tells of a transaction of
// its own. A table that does not persist stays so: its end and another one are no single
// transaction for the library, which has no flags.
func (k *link) renew(l *layout, wrote func()) (wipe func(*batch), err error) {
	there, flags, err := l.look()
	if err != nil {
		return nil, err
	}
	if !k.persists || there && flags&tablePersist == 0 {
		return func(b *batch) {
			b.conn.AddTable(l.table) // so that deleting it cannot fail
			b.conn.DelTable(l.table)
			b.conn.AddTable(l.table)
		}, nil
	}
	if err := k.declare(l); err != nil {
		return nil, held(err)
	}
	if !there {
		wrote()
	}
	return l.wipe()
}

// wipe returns what empties the table: rules and elements first, which lead to chains.
func (l *layout) wipe() (func(*batch), error) {
	var chains, sets []string
	list := func(message int, table, name uint16, names *[]string) error {
		return l.ask(message, unix.NLM_F_DUMP, l.ofTable(), func(one []byte) {
			if nfnetlink.Text(one, table) == l.table.Name {
				*names = append(*names, nfnetlink.Text(one, name))
			}
		})
	}
	err := errors.Join(
		list(unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, &chains),
		list(unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, &sets))
	if err != nil {
		return nil, fmt.Errorf("list what is in table %s of %s: %w", l.table.Name, l.family, err)
	}
	return func(b *batch) { b.wipe(l, chains, sets) }, nil
}

// held explains why others' tables cannot be changed.
func held(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: another process on this node owns the table, as a speaker that still runs: it must end first", err)
	}
	return err
}

// hold keeps others from the table while Watch runs, where the kernel can. What others
// did until then is seen by the epoch.
func (f *family) hold() {
	if !f.link.keeping || !f.link.persists || f.link.holds(f.layout) {
		return
	}
	f.asked = true
	if err := f.link.own(f.layout); err != nil {
		f.log.Debug("The kernel cannot keep others from our table; what they do to it is repaired", "error", err)
		return
	}
	f.watch.Wrote()
	f.sealed = f.watch.Look() == f.epoch
}

// untouched tells that others, who wrote, cannot have written to the table.
func (f *family) untouched() bool {
	if !f.sealed || !f.link.holds(f.layout) {
		return false
	}
	epoch := f.watch.Look()
	if _, flags, err := f.look(); err != nil || flags&tableOwner == 0 {
		return false
	}
	f.epoch = epoch
	return true
}

// keep has the tables held from now on, or lets go of them.
func (b *Backend) keep(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link.keeping = on; !on {
		b.link.close()
	}
}

// newLink is a socket that is not open yet.
func newLink() *link { return &link{owned: map[addr.Family]bool{}} }
