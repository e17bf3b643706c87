// Package kernelwatch finds out cheaply that other programs have changed rules in the kernel: it polls,
// compares the generation of nf_tables, and limits the time that is spent on what others cause.
package kernelwatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Epoch is a time in which no other program wrote to nf_tables; 0 stands for none.
type Epoch uint64

// HandoverTable is the table of each family that pulse writes, beside the speaker, which is another process.
const HandoverTable = "fairlead-handover"

// UntrackedTable is another one, which pulse hardly ever writes.
const UntrackedTable = "fairlead-untracked"

// TallySet is the set of a table in which its writer counts its transactions, as the one element of 32 bits.
const TallySet = "transactions"

// Generation tells the nf_tables transactions of other programs from our own, by the number that the kernel
// gives each of them. All that writes to nf_tables in a process shares one, so that no part of it takes
// another one for a stranger. The zero value has seen none.
type Generation struct {
	// Beside is a table of another process of ours, whose transactions begin no epoch either; "": none.
	Beside string

	mu      sync.Mutex
	conn    nfnetlink.Conn
	seen    uint32
	tally   uint32 // of Beside, then
	tallied bool   // and it is known
	epoch   Epoch
}

// Read calls read and returns the epoch in which it began, so that what others change meanwhile shows
// the next time, and the error of read.
func (g *Generation) Read(read func() error) (Epoch, error) {
	epoch := g.Epoch()
	return epoch, read()
}

// Epoch returns the one that is now, which costs a request to the kernel.
func (g *Generation) Epoch() Epoch {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now()
}

// Changed reports whether others have written since an epoch began.
func (g *Generation) Changed(since Epoch) bool { return g.Epoch() != since }

// Write calls write, which returns how many transactions it committed. These begin no epoch. Nothing else
// is asked of g meanwhile. The error is that of write.
func (g *Generation) Write(write func() (commits int, err error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	commits, err := write()
	if g.othersWrote(uint32(commits)) {
		g.epoch++
	}
	return err
}

// now returns the epoch. While the kernel does not answer, each question begins one.
func (g *Generation) now() Epoch {
	if g.othersWrote(0) || g.epoch == 0 {
		g.epoch++
	}
	return g.epoch
}

// attempts is how often the tally is read while transactions come between.
const attempts = 3

// othersWrote reports whether there were more transactions since the last call than these of our own and those
// that the tally counts. It is asked for only where there were others.
func (g *Generation) othersWrote(own uint32) bool {
	now, err := g.ask()
	for range attempts {
		if err != nil {
			break
		}
		if g.Beside == "" || now == g.seen+own {
			others := now != g.seen+own
			g.seen = now
			return others
		}
		tally, unknown := readTally(g.Beside)
		was := now
		if now, err = g.ask(); err == nil && unknown == nil && now == was {
			others := !g.tallied || now-g.seen-own != tally-g.tally
			g.seen, g.tally, g.tallied = now, tally, true
			return others
		}
	}
	g.seen, g.tallied = now, false
	return true
}

// readTally sums what the tables of a name count of both families; those that are not there count for none.
func readTally(table string) (tally uint32, err error) {
	about := nfnetlink.Attributes{}.Text(unix.NFTA_SET_ELEM_LIST_TABLE, table).Text(unix.NFTA_SET_ELEM_LIST_SET, TallySet)
	for _, family := range addr.Families() {
		err := nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, family, about, func(list []byte) {
			tally += TallyOf(list)
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return 0, fmt.Errorf("read set %s of table %s of %s: %w", TallySet, table, family, err)
		}
	}
	return tally, nil
}

// TallyOf returns the count in an answer of the kernel about the elements of TallySet.
func TallyOf(list []byte) (tally uint32) {
	nfnetlink.Each(nfnetlink.Find(list, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, element []byte) {
		if key := nfnetlink.Find(element, unix.NFTA_SET_ELEM_KEY, unix.NFTA_DATA_VALUE); len(key) == 4 {
			tally += binary.NativeEndian.Uint32(key)
		}
	})
	return tally
}

// ask counts the transactions that changed any nf_tables rule of this network namespace
// (NFT_MSG_GETGEN), those of iptables-nft among them.
func (g *Generation) ask() (uint32, error) {
	var generation uint32
	found := false
	err := g.conn.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, 0, 0, nil, func(answer []byte) {
		generation, found = nfnetlink.Number(answer, unix.NFTA_GEN_ID)
	})
	if err == nil && !found {
		err = errors.New("the kernel's answer has none")
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the nf_tables generation: %w", err)
	}
	return generation, nil
}
