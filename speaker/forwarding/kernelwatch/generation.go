// Package kernelwatch finds out cheaply that other programs have changed rules in the kernel: it polls,
// compares the generation of nf_tables, and limits the time that is spent on what others cause.
package kernelwatch

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// Counter asks for the number of the last transaction, several times a second and about
// every change, over a socket that it keeps. One goroutine at a time may use it.
type Counter struct{ conn nfnetlink.Conn }

// Generation counts the transactions that changed any nf_tables rule of this
// network namespace (NFT_MSG_GETGEN), those of iptables-nft among them.
func (c *Counter) Generation() (uint32, error) {
	var generation uint32
	found := false
	err := c.conn.Ask(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, 0, 0, nil, func(answer []byte) {
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

// Watch tells the transactions of others from our own. The zero value has seen none.
type Watch struct {
	counter Counter
	seen    uint32
	epoch   int
}

// Look returns the epoch: what was read in the same one is as it was, but for our own
// transactions.
func (w *Watch) Look() int {
	if now, err := w.counter.Generation(); err != nil || now != w.seen {
		w.seen = now
		w.epoch++
	}
	return w.epoch
}

// Wrote takes note of one transaction of ours.
func (w *Watch) Wrote() {
	now, err := w.counter.Generation()
	if err != nil || now != w.seen+1 {
		w.epoch++
	}
	w.seen = now
}
