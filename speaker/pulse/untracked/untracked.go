// Package untracked keeps hellos and BFD out of the kernel's connection table. So a table without room makes no node
// deaf, and no rule that translates, of whichever program, touches them.
package untracked

import (
	"context"
	"encoding/binary"
	"log/slog"
	"time"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// againEvery is the time between two attempts at what the kernel refuses.
const againEvery = time.Minute

// Keeper keeps the table of each family in the kernel.
type Keeper struct {
	socket   *nftable.Socket
	families []*family
	log      *slog.Logger
}

// family is the table of one family.
type family struct {
	nftable.Table
	port   uint16            // of the hellos
	epoch  kernelwatch.Epoch // when it was as wanted; 0: it is not
	failed time.Time         // the last attempt; zero: it succeeded
}

// New returns a keeper for hellos of that port that writes nothing before Run.
func New(helloPort uint16, log *slog.Logger) *Keeper {
	k := &Keeper{socket: nftable.NewSocket(nil), log: log}
	for _, f := range addr.Families() {
		k.families = append(k.families, &family{Table: nftable.New(f, kernelwatch.UntrackedTable), port: helloPort})
	}
	return k
}

// Run keeps the kernel as wanted until ctx ends, and returns nil then. The tables stay: the next process goes on with
// them.
func (k *Keeper) Run(ctx context.Context) error {
	k.apply()
	kernelwatch.Poll(ctx, kernelwatch.Interval, func() bool { return true }, k.apply)
	return nil
}

// apply writes what is not as wanted. It asks the kernel one question where others have written nothing.
func (k *Keeper) apply() {
	for _, f := range k.families {
		refused := !f.failed.IsZero()
		if refused && time.Since(f.failed) < againEvery {
			continue
		}
		switch err := f.apply(k.socket); {
		case err != nil:
			if f.epoch, f.failed = 0, time.Now(); !refused {
				k.log.Error("hellos and BFD are in the connection table, so that a full one makes this node deaf; it is tried again",
					"family", f.Family.String(), "error", err)
			}
		case refused:
			f.failed = time.Time{}
			k.log.Info("hellos and BFD are not in the connection table any more", "family", f.Family.String())
		}
	}
}

func (f *family) apply(k *nftable.Socket) error {
	if f.epoch != 0 && !k.Generation.Changed(f.epoch) {
		return nil
	}
	var is bool
	epoch, err := k.Generation.Read(func() (err error) {
		is, err = f.isWanted()
		return err
	})
	if f.epoch = epoch; is || err != nil {
		return err
	}
	return k.Commit(func(b *nftable.Batch) {
		b.Conn.AddTable(f.NFT) // so that there is one to delete
		b.Conn.DelTable(f.NFT)
		b.Conn.AddTable(f.NFT)
		b.Chains(&f.Table, f.chains())
	})
}

// isWanted tells whether the kernel has the table as it is made.
func (f *family) isWanted() (bool, error) {
	there, flags, err := f.Look()
	if err != nil || !there || flags&nftable.Dormant != 0 {
		return false, err
	}
	for _, c := range f.chains() {
		if holds, err := f.Holds(c); err != nil || !holds {
			return false, err
		}
	}
	return true, nil
}

// beforeTracking is the priority of what decides whether a packet is tracked (NF_IP_PRI_RAW).
const beforeTracking = -300

// Ports of BFD over one hop (RFC 5881) and over several (RFC 5883), where datagrams are sent from, and the TTL that
// they are sent with, and have still where they come over one hop.
const (
	portSingleHop = 3784
	portMultiHop  = 4784
	firstSource   = 49152
	sentTTL       = 255
)

// chains are the whole table. An answer to what a pod sent in this node's name comes to a port that masquerading chose,
// which may be one of these: so the ports alone do not tell.
func (f *family) chains() []nftable.Chain {
	fromHello := ifPort(sourcePort, expr.CmpOpEq, f.port)
	arriving := []nftable.Rule{
		rule("not UDP", ifNotUDP()),
		rule("a hello", ifPort(destinationPort, expr.CmpOpEq, f.port), fromHello, ifLocal(), untrack()),
		rule("BFD over one hop", ifPort(destinationPort, expr.CmpOpEq, portSingleHop), f.ifTTL(), ifLocal(), untrack()),
		rule("BFD over several hops", ifPort(destinationPort, expr.CmpOpEq, portMultiHop), ifPort(sourcePort, expr.CmpOpGte, firstSource), ifLocal(), untrack()),
	}
	leaving := []nftable.Rule{
		rule("not UDP", ifNotUDP()),
		rule("a hello", ifPort(destinationPort, expr.CmpOpEq, f.port), fromHello, untrack()),
		rule("BFD over one hop", ifPort(destinationPort, expr.CmpOpEq, portSingleHop), f.ifTTL(), untrack()),
		rule("BFD over several hops", ifPort(destinationPort, expr.CmpOpEq, portMultiHop), f.ifTTL(), untrack()),
	}
	at := func(hook *nft.ChainHook) nftable.Hook {
		return nftable.Hook{Kind: nft.ChainTypeFilter, Number: *hook, Priority: beforeTracking}
	}
	return []nftable.Chain{
		{Name: "arriving", At: at(nft.ChainHookPrerouting), Rules: arriving},
		{Name: "leaving", At: at(nft.ChainHookOutput), Rules: leaving},
	}
}

func rule(says string, exprs ...[]expr.Any) nftable.Rule {
	r := nftable.Rule{Says: says}
	for _, e := range exprs {
		r.Exprs = append(r.Exprs, e...)
	}
	return r
}

const register = unix.NFT_REG32_00

// Where the header of UDP has its ports.
const (
	sourcePort      = 0
	destinationPort = 2
)

func ifPort(which uint32, is expr.CmpOp, port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: which, Len: 2},
		&expr.Cmp{Op: is, Register: register, Data: binary.BigEndian.AppendUint16(nil, port)},
	}
}

// ifTTL ends the rule unless the TTL, or hop limit, is as it was sent.
func (f *family) ifTTL() []expr.Any {
	offset := uint32(8)
	if f.Family == addr.IPv6 {
		offset = 7
	}
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{sentTTL}},
	}
}

// ifNotUDP leaves the chain unless the packet is of UDP.
func ifNotUDP() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Verdict{Kind: expr.VerdictReturn},
	}
}

// ifLocal ends the rule unless the packet is to an address of this node.
func ifLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{FlagDADDR: true, Register: register, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)},
	}
}

func untrack() []expr.Any { return []expr.Any{&expr.Notrack{}} }
