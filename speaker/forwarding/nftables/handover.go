package nftables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// Handover keeps, in a table of its own, where packets go of connections that are open
// while an address moves to this node: unchanged to the node that had it, whose connection
// table knows them. It stands beside the rules of either backend, since to forward for
// others is no part of a Service, and since a kernel that cannot do it loses nothing else.
//
// What it hands over is TCP of which the connection table knows nothing, and no SYN. It goes
// one hop, however wrong the nodes are about each other: see handedTTL.
type Handover struct {
	mu       sync.Mutex
	link     *link
	families []*handing
	revision uint64 // of what all is in place; 0: something is not
}

// NewHandover returns one that has written nothing yet. The generation is shared with all that writes to
// nf_tables in this process; nil: nothing else does.
func NewHandover(g *kernelwatch.Generation) *Handover {
	h := &Handover{link: newLink(g)}
	for _, f := range addr.Families() {
		h.families = append(h.families, newHanding(f))
	}
	return h
}

// Apply brings the kernel to want, the address of a node by each address of which it had
// the connections. A caller that numbers its states pays next to nothing for one that is in
// place; 0 is no number. What the kernel refuses is refused in one family alone, and asked
// for again after a while; the error says what follows from it.
func (h *Handover) Apply(want map[netip.Addr]netip.Addr, revision uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if revision != 0 && revision == h.revision {
		return nil
	}
	var errs []error
	for _, f := range h.families {
		errs = append(errs, f.apply(h.link, want))
	}
	err := errors.Join(errs...)
	if h.revision = 0; err == nil {
		h.revision = revision
	}
	return err
}

// Disturbed tells whether others changed what is ours, so that an Apply has something to do.
func (h *Handover) Disturbed() bool {
	if !h.mu.TryLock() {
		return false // an Apply is at work
	}
	defer h.mu.Unlock()
	disturbed := false
	for _, f := range h.families {
		disturbed = f.disturbed(h.link.Generation) || disturbed
	}
	if disturbed {
		h.revision = 0
	}
	return disturbed
}

// Packets counts what was handed over of a family since the rules were written. The errors are the kernel's.
func (h *Handover) Packets(family addr.Family) (uint64, error) {
	return newHanding(family).Packets()
}

// Cleanup removes the tables. A later Apply begins anew. The errors are the kernel's.
func (h *Handover) Cleanup() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revision = 0
	for _, f := range h.families {
		f.known, f.refused = false, nil
	}
	return RemoveHandover()
}

// RemoveHandover removes the tables from this network namespace. The errors are the kernel's.
func RemoveHandover() error {
	return nftable.Remove(handoverTable)
}

const (
	handoverTable = tableName + "-handover"
	// arrivingChain is its chain.
	arrivingChain = "arriving"
	// formerMap has the nodes.
	formerMap = "former"
	// beforeMangle is behind the connection table, and before all that has a word on packets
	// of unknown connections, such as our own rules for what is INVALID.
	beforeMangle = -150 - 5
	// handedTTL is what packets are handed over with, less the one that the kernel takes off.
	// Those that come with no more are not handed over: they may have been already, and two
	// nodes that take each other for the former owner do not play ball with them. It only
	// ever gets less, so that no router between the nodes brings them back either. It is
	// enough for any cluster network behind the former owner, and clients are not that far away:
	// theirs begins at 64 or more.
	handedTTL = 17
	// lookEvery is the least time between two looks at all elements when others write.
	lookEvery = 10 * time.Second
	// tryEvery is the least time between two attempts at what the kernel refused.
	tryEvery = time.Minute
)

// handing is the table of one family and what is known of it.
type handing struct {
	*layout
	former *nft.Set

	known  bool // what the kernel has, and then:
	made   bool // the table is there, with its rules
	placed map[netip.Addr]netip.Addr
	epoch  kernelwatch.Epoch // when it was so
	looked time.Time         // when all elements last were read

	refused error // by the kernel, of the whole table
	tried   time.Time
}

func newHanding(family addr.Family) *handing {
	l := &layout{Table: nftable.New(family, handoverTable)}
	ip := nft.TypeIPAddr
	if family == addr.IPv6 {
		ip = nft.TypeIP6Addr
	}
	return &handing{layout: l, former: &nft.Set{
		Table: l.NFT, ID: 1, Name: formerMap, KeyType: ip, DataType: ip, IsMap: true,
	}}
}

// arriving is the chain. Nearly all packets leave it at its first rule.
func (h *handing) arriving() chain {
	const at = 13 // of the flags in the header of TCP
	flags := func(mask byte, op expr.CmpOp) []expr.Any {
		return []expr.Any{
			&expr.Payload{DestRegister: reg(0), Base: expr.PayloadBaseTransportHeader, Offset: at, Len: 1},
			&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
			&expr.Cmp{Op: op, Register: reg(0), Data: []byte{0}},
		}
	}
	return chain{Name: arrivingChain, At: hook{Kind: nft.ChainTypeFilter, Number: *nft.ChainHookPrerouting, Priority: beforeMangle}, Rules: []rule{
		{Says: "of a known connection", Exprs: flat([]expr.Any{
			&expr.Ct{Register: reg(0), Key: expr.CtKeySTATE}, bitwise(0, expr.CtStateBitNEW|expr.CtStateBitINVALID, 0),
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: number(0)},
		}, leave())},
		{Says: "not TCP", Exprs: flat([]expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg(0)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: []byte{unix.IPPROTO_TCP}},
		}, leave())},
		{Says: "begins a connection", Exprs: flat(flags(synFlag, expr.CmpOpNeq), leave())},
		// The end of an unknown connection is INVALID. So is what is out of the window of a known one.
		{Says: "does not end one, and makes no sense", Exprs: flat(ifInvalid(), flags(finFlag|rstFlag, expr.CmpOpEq), leave())},
		{Says: "handed over already", Exprs: flat(h.ifTTL(handedTTL), leave())},
		{Says: "to the node that had the address", Exprs: flat(
			h.destinationAddress(0),
			[]expr.Any{&expr.Lookup{SourceRegister: reg(0), DestRegister: reg(endpointAt), IsDestRegSet: true, SetName: formerMap}},
			h.setTTL(handedTTL),
			flat(counter(), []expr.Any{&expr.Dup{RegAddr: reg(endpointAt)}}),
			drop())},
	}}
}

// ifTTL ends the rule unless the TTL, or hop limit, is this or less.
func (h *handing) ifTTL(most byte) []expr.Any {
	offset, _ := h.ttl()
	return []expr.Any{
		&expr.Payload{DestRegister: reg(0), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1},
		&expr.Cmp{Op: expr.CmpOpLte, Register: reg(0), Data: []byte{most}},
	}
}

// setTTL sets it. The checksum of IPv4 is mended by words of 16 bits.
func (h *handing) setTTL(to byte) []expr.Any {
	offset, checksum := h.ttl()
	if !checksum {
		return []expr.Any{
			&expr.Immediate{Register: reg(0), Data: []byte{to}},
			&expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: reg(0), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1},
		}
	}
	const checksumAt = 10
	return []expr.Any{
		&expr.Payload{DestRegister: reg(0), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 2},
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 2, Mask: []byte{0, 0xff}, Xor: []byte{to, 0}},
		&expr.Payload{
			OperationType: expr.PayloadWrite, SourceRegister: reg(0), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 2,
			CsumType: expr.CsumTypeInet, CsumOffset: checksumAt,
		},
	}
}

// ttl is where it is in the header, and whether that has a checksum.
func (h *handing) ttl() (offset uint32, checksum bool) {
	if h.Family == addr.IPv6 {
		return 7, false
	}
	return 8, true
}

func (h *handing) apply(k *link, want map[netip.Addr]netip.Addr) error {
	if !h.known {
		epoch, err := k.Generation.Read(h.read)
		if err != nil {
			return h.failed(err)
		}
		h.known, h.epoch = true, epoch
	}
	gone, come := h.differences(want)
	if len(gone)+len(come) == 0 {
		return nil
	}
	if !h.made && h.refused != nil && time.Since(h.tried) < tryEvery {
		return h.refused
	}
	err := k.Commit(func(b *batch) {
		if !h.made {
			b.Conn.AddTable(h.NFT) // so that there is one to delete
			b.Conn.DelTable(h.NFT)
			b.Conn.AddTable(h.NFT)
			b.Note(b.Conn.AddSet(h.former, nil))
			b.Chains(&h.Table, []chain{h.arriving()})
		}
		b.InMessages(gone, func(e []nft.SetElement) error { return b.Conn.SetDeleteElements(h.former, e) })
		b.InMessages(come, func(e []nft.SetElement) error { return b.Conn.SetAddElements(h.former, e) })
	})
	switch {
	case err == nil:
	case h.made: // another program may have taken it away
		h.known = false
		return h.failed(err)
	default:
		h.known, h.tried = false, time.Now()
		h.refused = h.failed(fmt.Errorf("%w: the kernel must have NF_TABLES, NFT_CT and NFT_DUP_%s, as Linux 4.3 and newer can, "+
			"and the process the capability NET_ADMIN", err, strings.ToUpper(h.Family.String())))
		return h.refused
	}
	h.made, h.refused = true, nil
	maps.DeleteFunc(h.placed, func(a, _ netip.Addr) bool { _, stays := want[a]; return !stays })
	for _, e := range come {
		a, _ := netip.AddrFromSlice(e.Key)
		h.placed[a], _ = netip.AddrFromSlice(e.Val)
	}
	return nil
}

// differences are the elements that the kernel has and is not to have, and the other way round.
func (h *handing) differences(want map[netip.Addr]netip.Addr) (gone, come []nft.SetElement) {
	element := func(a, node netip.Addr) nft.SetElement { return nft.SetElement{Key: a.AsSlice(), Val: node.AsSlice()} }
	for a, node := range h.placed {
		if want[a] != node {
			gone = append(gone, element(a, node))
		}
	}
	for a, node := range want {
		if addr.FamilyOf(a) == h.Family && h.placed[a] != node {
			come = append(come, element(a, node))
		}
	}
	return gone, come
}

func (h *handing) failed(err error) error {
	return fmt.Errorf("connections of %s that are open while an address moves to this node may break, as they are not handed over: %w", h.Family, err)
}

// read takes in what the kernel has. A table that is not as ours are made counts for none.
func (h *handing) read() error {
	h.made, h.placed, h.looked = false, map[netip.Addr]netip.Addr{}, time.Now()
	there, flags, err := h.Look()
	if err != nil || !there || flags&nftable.Dormant != 0 {
		return err
	}
	as, err := h.asMade()
	if err != nil || !as {
		return err
	}
	placed, err := h.elements()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		h.made, h.placed = true, placed
	}
	return err
}

// asMade tells whether the kernel has our chain, and all of its rules and no others. It asks
// for this chain alone: others may have thousands.
func (h *handing) asMade() (bool, error) {
	value := ""
	err := h.Ask(unix.NFT_MSG_GETCHAIN, 0, h.Attributes().Text(unix.NFTA_CHAIN_NAME, arrivingChain), func(c []byte) {
		value = nftable.HookOf(c)
	})
	if err == nil {
		err = h.Ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, h.Attributes().Text(unix.NFTA_RULE_CHAIN, arrivingChain), func(r []byte) {
			if nfnetlink.Text(r, unix.NFTA_RULE_TABLE) == h.NFT.Name {
				value += "\n" + h.StampOf(r)
			}
		})
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read chain %s of table %s of %s: %w", arrivingChain, handoverTable, h.Family, err)
	}
	return value == h.Content(h.arriving()), nil
}

func (h *handing) elements() (map[netip.Addr]netip.Addr, error) {
	found := map[netip.Addr]netip.Addr{}
	about := h.Attributes().Text(unix.NFTA_SET_ELEM_LIST_SET, formerMap)
	err := h.Ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, about, func(list []byte) {
		nfnetlink.Each(nfnetlink.Find(list, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, one []byte) {
			key, value, _ := nftable.ParseElement(one)
			a, is := netip.AddrFromSlice([]byte(key))
			node, too := netip.AddrFromSlice([]byte(value))
			if is && too {
				found[a] = node
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read map %s of table %s of %s: %w", formerMap, handoverTable, h.Family, err)
	}
	return found, nil
}

// disturbed tells whether the table is not as it was left. It looks only when others have
// written, at the rules, and now and then at all elements: a flush takes rules and elements alike.
func (h *handing) disturbed(g *kernelwatch.Generation) bool {
	if !h.known || !h.made || !g.Changed(h.epoch) {
		return false
	}
	as, whole := false, time.Since(h.looked) >= lookEvery
	epoch, err := g.Read(func() (err error) {
		if as, err = h.asMade(); err != nil || !as || !whole {
			return err
		}
		placed, err := h.elements()
		as, h.looked = maps.Equal(placed, h.placed), time.Now()
		return err
	})
	if whole {
		h.epoch = epoch
	}
	if err != nil || !as {
		h.known = false
		return true
	}
	return false
}
