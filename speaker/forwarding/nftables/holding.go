package nftables

import (
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// Flags of a table (linux/netfilter/nf_tables.h). The kernel changes one that has an owner
// over the owner's socket alone, and what others flush does not concern it (Linux 5.12). One
// that persists has no owner when that socket closes, as when the process ends, and the next
// process may own it (Linux 6.9). Whether a table persists is settled when it is made: one that
// does not, is replaced.
const (
	tableOwner   uint32 = 2
	tablePersist uint32 = 4
)

// persistence finds out whether the kernel knows tables that persist. One that takes
// nothing at all, and so would answer once for several messages, is asked again later.
func (k *link) persistence(l *layout) {
	if k.unsure = k.probe(l) != nil; k.unsure {
		return
	}
	probe := l.as(probeTable)
	k.persists = k.Transact(probe.tableMessage(unix.NFT_MSG_NEWTABLE, tableOwner|tablePersist), probe.tableMessage(unix.NFT_MSG_DELTABLE, 0)) == nil
}

// own makes a table that persists this socket's own, until that is closed.
func (k *link) own(l *layout) error {
	err := k.Transact(l.tableMessage(unix.NFT_MSG_NEWTABLE, tableOwner|tablePersist))
	if err == nil {
		k.owned[l.Family] = k.Conn()
	}
	return err
}

// holds reports whether no other process can change the table.
func (k *link) holds(l *layout) bool {
	conn := k.Conn()
	return conn != nil && k.owned[l.Family] == conn
}

// tableMessage is a message about the table itself, for which the library has no flags.
func (l *layout) tableMessage(command int, flags uint32) netlink.Message {
	body := append([]byte{nfnetlink.Protocol(l.Family), unix.NFNETLINK_V0, 0, 0}, l.Attributes()...)
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

// replace puts a table as we make it in place of whatever has its name, with what the
// function composes in it, in one transaction: no packet meets less than one of the two.
func (k *link) replace(l *layout, compose func(b *batch)) error {
	if k.unsure {
		k.persistence(l)
	}
	if !k.persists {
		return k.Commit(func(b *batch) {
			b.Conn.AddTable(l.NFT) // so that deleting it cannot fail
			b.Conn.DelTable(l.NFT)
			b.Conn.AddTable(l.NFT)
			compose(b)
		})
	}
	messages, err := nftable.Record(compose)
	if err != nil {
		return err
	}
	flags := tablePersist
	if k.holds(l) {
		flags |= tableOwner
	}
	begin := []netlink.Message{l.tableMessage(destroyTable, 0), l.tableMessage(unix.NFT_MSG_NEWTABLE, flags)}
	return k.Transact(slices.Concat(begin, messages)...)
}

// destroyTable is NFT_MSG_DESTROYTABLE, which deletes a table if there is one (Linux 6.3).
const destroyTable = 26

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
	f.sealed = !f.link.Generation.Changed(f.epoch)
}

// untouched reports whether what others wrote cannot have been to the table.
func (f *family) untouched() bool {
	if !f.sealed || !f.link.holds(f.layout) {
		return false
	}
	var flags uint32
	epoch, err := f.link.Generation.Read(func() (err error) {
		_, flags, err = f.Look()
		return err
	})
	if err != nil || flags&tableOwner == 0 {
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
		b.link.Close()
	}
}
