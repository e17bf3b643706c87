// Package untracked keeps hellos and BFD out of the kernel's connection table. So a table without room makes no node
// deaf, and no rule that translates, of whichever program, touches them.
package untracked

import (
	"context"
	"encoding/binary"
	"log/slog"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// Keeper keeps the table of each family in the kernel.
type Keeper struct{ *nftable.Keeper }

// New returns a keeper for hellos of that port that writes nothing before Run.
func New(helloPort uint16, log *slog.Logger) *Keeper {
	k := nftable.NewKeeper(nil, kernelwatch.UntrackedTable, func(t *nftable.Table) nftable.Layout {
		return nftable.Layout{Chains: (&family{t.Family, helloPort}).chains()}
	})
	k.Refused = func(family string, err error) {
		log.Error("hellos and BFD are in the connection table, so that a full one makes this node deaf; it is tried again", "family", family, "error", err)
	}
	k.Taken = func(family string) {
		log.Info("hellos and BFD are not in the connection table any more", "family", family)
	}
	return &Keeper{k}
}

// Run keeps the kernel as wanted until ctx ends, and returns nil then. The tables stay: the next process goes on with
// them.
func (k *Keeper) Run(ctx context.Context) error {
	k.Keeper.Run(ctx)
	return nil
}

// family is the table of one family.
type family struct {
	addr.Family
	port uint16 // of the hellos
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
