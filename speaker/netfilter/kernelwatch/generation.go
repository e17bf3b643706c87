// Package kernelwatch finds out cheaply that other programs have changed rules in the kernel: it polls,
// compares the generation of nf_tables, and limits the time that is spent on what others cause.
package kernelwatch

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Epoch is a time in which no other program wrote to nf_tables; 0 stands for none.
type Epoch uint64

// Generation tells the nf_tables transactions of other programs from our own, by the number that the kernel
// gives each of them. All that writes to nf_tables in a process shares one, so that no part of it takes
// another one for a stranger. The zero value has seen none.
type Generation struct {
	mu    sync.Mutex
	conn  nfnetlink.Conn
	seen  uint32
	epoch Epoch
}

// Read calls read and returns the epoch in which it began, so that what others change meanwhile shows
// the next time, and the error of read.
func (g *Generation) Read(read func() error) (Epoch, error) {
	g.mu.Lock()
	epoch := g.now()
	g.mu.Unlock()
	return epoch, read()
}

// Changed reports whether others have written since an epoch began.
func (g *Generation) Changed(since Epoch) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now() != since
}

// Write calls write, which returns how many transactions it committed. These begin no epoch. Nothing else
// is asked of g meanwhile. The error is that of write.
func (g *Generation) Write(write func() (commits int, err error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	commits, err := write()
	now, failed := g.ask()
	if failed != nil || now != g.seen+uint32(commits) {
		g.epoch++
	}
	g.seen = now
	return err
}

// now returns the epoch. While the kernel does not answer, each question begins one.
func (g *Generation) now() Epoch {
	if now, err := g.ask(); err != nil || now != g.seen || g.epoch == 0 {
		g.seen = now
		g.epoch++
	}
	return g.epoch
}

// ask counts the transactions that changed any nf_tables rule of this network namespace
// (NFT_MSG_GETGEN), those of iptables-nft among them.
func (g *Generation) ask() (uint32, error) {
	var generation uint32
	found := false
	err := g.conn.Ask(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, 0, 0, nil, func(answer []byte) {
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
