package nftable

import (
	"errors"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// TestTheKernelRefusesAWhole has the kernel refuse transactions before it looks into them, so that
// it answers once, however many messages there are: nobody waits for the other answers, and
// none is taken for that to the next transaction.
func TestTheKernelRefusesAWhole(t *testing.T) {
	node := netlab.NewHost(t, "node")
	k := NewSocket(nil)
	defer k.Close()
	node.Do(func() {
		if err := k.open(); err != nil {
			t.Fatal(err)
		}
	})
	table := New(addr.IPv4, "probe")
	stale := frame(unix.NFNL_MSG_BATCH_BEGIN) // of another generation of the rules
	stale.Data = append(stale.Data, nfnetlink.Attributes{}.Uint32(unix.NFNL_BATCH_GENID, 1<<31)...)
	stranger := frame(unix.NFNL_MSG_BATCH_BEGIN)
	stranger.Data[3] = unix.NFNL_SUBSYS_CTNETLINK // which knows no transactions
	for name, refusal := range map[string]struct {
		begin  netlink.Message
		reason unix.Errno
	}{"of another generation": {stale, unix.ERESTART}, "of another subsystem": {stranger, unix.EOPNOTSUPP}} {
		within(t, name, func() error {
			create, remove := about(table, unix.NFT_MSG_NEWTABLE), about(table, unix.NFT_MSG_DELTABLE)
			err := k.exchange([]netlink.Message{refusal.begin, create, create, remove, frame(unix.NFNL_MSG_BATCH_END)})
			if !errors.Is(err, refusal.reason) {
				t.Errorf("%s: error %v, want %v", name, err, refusal.reason)
			}
			return comeAndGo(k, table)
		})
	}
}

// TestTheKernelRefusesSome holds that all that is refused is told, and that the next
// transaction is not mistaken for it.
func TestTheKernelRefusesSome(t *testing.T) {
	node := netlab.NewHost(t, "node")
	k := NewSocket(nil)
	defer k.Close()
	node.Do(func() {
		table := New(addr.IPv6, "probe")
		remove := about(table, unix.NFT_MSG_DELTABLE) // there is none
		unknown := remove
		unknown.Header.Type |= 0xff
		err := k.Transact(remove, unknown, remove)
		if !errors.Is(err, unix.ENOENT) || !errors.Is(err, unix.EINVAL) {
			t.Errorf("error %v, want both reasons", err)
		}
		if err := comeAndGo(k, table); err != nil {
			t.Errorf("the next transaction: %v", err)
		}
	})
}

// about is a command about a table, with a receipt.
func about(table Table, command int) netlink.Message {
	m := netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | command), Flags: netlink.Request | netlink.Acknowledge},
		Data:   append([]byte{nfnetlink.Protocol(table.Family), unix.NFNETLINK_V0, 0, 0}, table.Attributes()...),
	}
	if command == unix.NFT_MSG_NEWTABLE {
		m.Header.Flags |= netlink.Create
	}
	return m
}

// comeAndGo makes a table that does not stay.
func comeAndGo(k *Socket, table Table) error {
	return k.Commit(func(b *Batch) {
		b.Conn.AddTable(table.NFT)
		b.Conn.DelTable(table.NFT)
	})
}

// within fails the test if something does not end.
func within(t *testing.T, name string, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("after a transaction %s: %v", name, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("a transaction %s waits for ever", name)
	}
}
