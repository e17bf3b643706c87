package nftables

import (
	"errors"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// TestTheKernelRefusesAWhole has the kernel refuse transactions before it looks into them, so that
// it answers once, however many messages there are: nobody waits for the other answers, and
// none is taken for that to the next transaction.
func TestTheKernelRefusesAWhole(t *testing.T) {
	node := netlab.NewHost(t, "node")
	k := newLink(nil)
	defer k.close()
	node.Do(func() {
		if err := k.open(); err != nil {
			t.Fatal(err)
		}
	})
	l := newLayout(addr.IPv4, desired.MasqueradeMark)
	stale := frame(unix.NFNL_MSG_BATCH_BEGIN) // of another generation of the rules
	stale.Data = append(stale.Data, nfnetlink.Attributes{}.Uint32(unix.NFNL_BATCH_GENID, 1<<31)...)
	stranger := frame(unix.NFNL_MSG_BATCH_BEGIN)
	stranger.Data[3] = unix.NFNL_SUBSYS_CTNETLINK // which knows no transactions
	for name, refusal := range map[string]struct {
		begin  netlink.Message
		reason unix.Errno
	}{"of another generation": {stale, unix.ERESTART}, "of another subsystem": {stranger, unix.EOPNOTSUPP}} {
		within(t, name, func() error {
			create, remove := l.tableMessage(unix.NFT_MSG_NEWTABLE, 0), l.tableMessage(unix.NFT_MSG_DELTABLE, 0)
			err := k.exchange([]netlink.Message{refusal.begin, create, create, remove, frame(unix.NFNL_MSG_BATCH_END)})
			if !errors.Is(err, refusal.reason) {
				t.Errorf("%s: error %v, want %v", name, err, refusal.reason)
			}
			return k.probe(l)
		})
	}
}

// TestTheKernelRefusesSome holds that all that is refused is told, and that the next
// transaction is not mistaken for it.
func TestTheKernelRefusesSome(t *testing.T) {
	node := netlab.NewHost(t, "node")
	k := newLink(nil)
	defer k.close()
	node.Do(func() {
		l := newLayout(addr.IPv6, desired.MasqueradeMark)
		remove := l.tableMessage(unix.NFT_MSG_DELTABLE, 0) // there is none
		unknown := remove
		unknown.Header.Type |= 0xff
		err := k.transact(remove, unknown, remove)
		if !errors.Is(err, unix.ENOENT) || !errors.Is(err, unix.EINVAL) {
			t.Errorf("error %v, want both reasons", err)
		}
		if err := k.probe(l); err != nil {
			t.Errorf("the next transaction: %v", err)
		}
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
