package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// Table is the nf_tables table of each family that hands over. It stands beside the rules that forward, since to
// forward for others is no part of a Service, and since a kernel that cannot do it loses nothing else.
//
// What it hands over is TCP of which the connection table knows nothing, and no SYN. It goes
// one hop, however wrong the nodes are about each other: see handedTTL.
//
// One goroutine at a time may use it.
type Table struct {
	socket   *nftable.Socket
	families []*table
}

// NewTable returns a table that is not written yet.
func NewTable() *Table {
	t := &Table{socket: nftable.NewSocket(nil)}
	for _, f := range addr.Families() {
		t.families = append(t.families, newTable(f))
	}
	return t
}

// Apply brings the kernel to want, the address of a node by each address of which it had
// the connections. What is in place is not written again. What the kernel refuses is refused in one family
// alone, and asked for again after a while; the error says what follows from it.
func (t *Table) Apply(want map[netip.Addr]netip.Addr) error {
	var errs []error
	for _, f := range t.families {
		errs = append(errs, f.apply(t.socket, want))
	}
	return errors.Join(errs...)
}

// Disturbed reports whether others changed what is ours, so that an Apply has something to do.
func (t *Table) Disturbed() bool {
	disturbed := false
	for _, f := range t.families {
		disturbed = f.disturbed(t.socket.Generation) || disturbed
	}
	return disturbed
}

const (
	// arrivingChain is the chain of a table.
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

// table is the table of one family and what is known of it.
type table struct {
	nftable.Table
	former, tally *nft.Set

	known    bool // what the kernel has, and then:
	made     bool // the table is there, with its rules
	placed   map[netip.Addr]netip.Addr
	writings uint32            // as the tally has them, see kernelwatch.TallySet
	epoch    kernelwatch.Epoch // when it was so
	looked   time.Time         // when all elements last were read

	refused error // by the kernel, of the whole table
	tried   time.Time
}

func newTable(family addr.Family) *table {
	t := &table{Table: nftable.New(family, kernelwatch.HandoverTable)}
	ip := nft.TypeIPAddr
	if family == addr.IPv6 {
		ip = nft.TypeIP6Addr
	}
	t.former = &nft.Set{Table: t.NFT, ID: 1, Name: formerMap, KeyType: ip, DataType: ip, IsMap: true}
	// A set with a size stays as it is made. One that the kernel makes larger or smaller lacks elements meanwhile.
	t.tally = &nft.Set{Table: t.NFT, ID: 2, Name: kernelwatch.TallySet, KeyType: nft.TypeMark, Size: 2}
	return t
}

// A register holds a word. The node is looked up to a register behind the longest address.
const (
	register     = unix.NFT_REG32_00
	nodeRegister = register + 8
)

// arriving is the chain. Nearly all packets leave it at its first rule.
func (t *table) arriving() nftable.Chain {
	const flagsAt = 13 // in the header of TCP
	const fin, syn, rst = 1 << 0, 1 << 1, 1 << 2
	unless := func(mask byte) []expr.Any { // the flags of TCP have one of these
		return []expr.Any{
			&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: flagsAt, Len: 1},
			masked(mask),
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{0}},
		}
	}
	state := func(of uint32, is expr.CmpOp) []expr.Any { // of the connection
		return []expr.Any{
			&expr.Ct{Register: register, Key: expr.CtKeySTATE},
			masked(binary.NativeEndian.AppendUint32(nil, of)...),
			&expr.Cmp{Op: is, Register: register, Data: make([]byte, 4)},
		}
	}
	rule := func(says string, exprs ...[]expr.Any) nftable.Rule {
		return nftable.Rule{Says: says, Exprs: flat(exprs)}
	}
	leave := []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}
	begins := unless(syn)
	begins[2] = &expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{0}}
	hook := nftable.Hook{Kind: nft.ChainTypeFilter, Number: *nft.ChainHookPrerouting, Priority: beforeMangle}
	return nftable.Chain{Name: arrivingChain, At: hook, Rules: []nftable.Rule{
		rule("of a known connection", state(expr.CtStateBitNEW|expr.CtStateBitINVALID, expr.CmpOpEq), leave),
		rule("not TCP", []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
		}, leave),
		rule("begins a connection", begins, leave),
		// The end of an unknown connection is INVALID. So is what is out of the window of a known one.
		rule("does not end one, and makes no sense", state(expr.CtStateBitINVALID, expr.CmpOpNeq), unless(fin|rst), leave),
		rule("handed over already", t.ifTTL(handedTTL), leave),
		rule("to the node that had the address", []expr.Any{
			t.destination(),
			&expr.Lookup{SourceRegister: register, DestRegister: nodeRegister, IsDestRegSet: true, SetName: formerMap},
		}, t.setTTL(handedTTL), []expr.Any{&expr.Counter{}, &expr.Dup{RegAddr: nodeRegister}, &expr.Verdict{Kind: expr.VerdictDrop}}),
	}}
}

func flat(parts [][]expr.Any) (all []expr.Any) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// masked keeps these bits of the register.
func masked(bits ...byte) expr.Any {
	return &expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(len(bits)), Mask: bits, Xor: make([]byte, len(bits))}
}

// destination loads the address that a packet goes to.
func (t *table) destination() expr.Any {
	if t.Family == addr.IPv6 {
		return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 16}
	}
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
}

// ifTTL ends the rule unless the TTL, or hop limit, is this or less.
func (t *table) ifTTL(most byte) []expr.Any {
	offset, _ := t.ttl()
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1},
		&expr.Cmp{Op: expr.CmpOpLte, Register: register, Data: []byte{most}},
	}
}

// setTTL sets it. The checksum of IPv4 is mended by words of 16 bits.
func (t *table) setTTL(to byte) []expr.Any {
	offset, checksum := t.ttl()
	if !checksum {
		return []expr.Any{
			&expr.Immediate{Register: register, Data: []byte{to}},
			&expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1},
		}
	}
	const checksumAt = 10
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 2},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 2, Mask: []byte{0, 0xff}, Xor: []byte{to, 0}},
		&expr.Payload{
			OperationType: expr.PayloadWrite, SourceRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 2,
			CsumType: expr.CsumTypeInet, CsumOffset: checksumAt,
		},
	}
}

// ttl is where it is in the header, and whether that has a checksum.
func (t *table) ttl() (offset uint32, checksum bool) {
	if t.Family == addr.IPv6 {
		return 7, false
	}
	return 8, true
}

func (t *table) apply(k *nftable.Socket, want map[netip.Addr]netip.Addr) error {
	if !t.known {
		epoch, err := k.Generation.Read(t.read)
		if err != nil {
			return t.failed(err)
		}
		t.known, t.epoch = true, epoch
	}
	gone, come := t.differences(want)
	if len(gone)+len(come) == 0 {
		return nil
	}
	if !t.made && t.refused != nil && time.Since(t.tried) < tryEvery {
		return t.refused
	}
	err := k.Commit(func(b *nftable.Batch) {
		if !t.made {
			b.Conn.AddTable(t.NFT) // so that there is one to delete
			b.Conn.DelTable(t.NFT)
			b.Conn.AddTable(t.NFT)
			b.Note(errors.Join(b.Conn.AddSet(t.former, nil), b.Conn.AddSet(t.tally, nil)))
			b.Chains(&t.Table, []nftable.Chain{t.arriving()})
		} else {
			b.Note(b.Conn.SetDeleteElements(t.tally, count(t.writings)))
		}
		b.Note(b.Conn.SetAddElements(t.tally, count(t.writings+1)))
		b.InMessages(gone, func(e []nft.SetElement) error { return b.Conn.SetDeleteElements(t.former, e) })
		b.InMessages(come, func(e []nft.SetElement) error { return b.Conn.SetAddElements(t.former, e) })
	})
	switch {
	case err == nil:
	case t.made: // another program may have taken it away
		t.known = false
		return t.failed(err)
	default:
		t.known, t.tried = false, time.Now()
		t.refused = t.failed(fmt.Errorf("%w: the kernel must have NF_TABLES, NFT_CT and NFT_DUP_%s, as Linux 4.3 and newer can, "+
			"and the process the capability NET_ADMIN", err, strings.ToUpper(t.Family.String())))
		return t.refused
	}
	t.made, t.refused = true, nil
	t.writings++
	maps.DeleteFunc(t.placed, func(a, _ netip.Addr) bool { _, stays := want[a]; return !stays })
	for _, e := range come {
		a, _ := netip.AddrFromSlice(e.Key)
		t.placed[a], _ = netip.AddrFromSlice(e.Val)
	}
	return nil
}

// count is the element of the tally.
func count(writings uint32) []nft.SetElement {
	return []nft.SetElement{{Key: binary.NativeEndian.AppendUint32(nil, writings)}}
}

// differences are the elements that the kernel has and is not to have, and the other way round.
func (t *table) differences(want map[netip.Addr]netip.Addr) (gone, come []nft.SetElement) {
	element := func(a, node netip.Addr) nft.SetElement { return nft.SetElement{Key: a.AsSlice(), Val: node.AsSlice()} }
	for a, node := range t.placed {
		if want[a] != node {
			gone = append(gone, element(a, node))
		}
	}
	for a, node := range want {
		if addr.FamilyOf(a) == t.Family && t.placed[a] != node {
			come = append(come, element(a, node))
		}
	}
	return gone, come
}

func (t *table) failed(err error) error {
	return fmt.Errorf("connections of %s that are open while an address moves to this node may break, as they are not handed over: %w", t.Family, err)
}

// read takes in what the kernel has. A table that is not as ours are made counts for none.
func (t *table) read() error {
	t.made, t.placed, t.looked = false, map[netip.Addr]netip.Addr{}, time.Now()
	there, flags, err := t.Look()
	if err != nil || !there || flags&nftable.Dormant != 0 {
		return err
	}
	as, err := t.Holds(t.arriving())
	if err != nil || !as {
		return err
	}
	placed, writings, err := t.elements()
	if errors.Is(err, unix.ENOENT) || err == nil && writings == 0 {
		return nil
	}
	if err == nil {
		t.made, t.placed, t.writings = true, placed, writings
	}
	return err
}

// elements are those of the map, and what the tally counts.
func (t *table) elements() (found map[netip.Addr]netip.Addr, writings uint32, err error) {
	found = map[netip.Addr]netip.Addr{}
	of := func(set string, take func(list []byte)) error {
		return t.Ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, t.Attributes().Text(unix.NFTA_SET_ELEM_LIST_SET, set), take)
	}
	err = errors.Join(of(formerMap, func(list []byte) {
		nfnetlink.Each(nfnetlink.Find(list, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, one []byte) {
			key, value, _ := nftable.ParseElement(one)
			a, is := netip.AddrFromSlice([]byte(key))
			node, too := netip.AddrFromSlice([]byte(value))
			if is && too {
				found[a] = node
			}
		})
	}), of(kernelwatch.TallySet, func(list []byte) { writings += kernelwatch.TallyOf(list) }))
	if err != nil {
		return nil, 0, fmt.Errorf("read the sets of table %s of %s: %w", t.NFT.Name, t.Family, err)
	}
	return found, writings, nil
}

// disturbed tells whether the table is not as it was left. It looks only when others have
// written, at the rules, and now and then at all elements: a flush takes rules and elements alike.
func (t *table) disturbed(g *kernelwatch.Generation) bool {
	if !t.known || !t.made || !g.Changed(t.epoch) {
		return false
	}
	as, whole := false, time.Since(t.looked) >= lookEvery
	epoch, err := g.Read(func() (err error) {
		if as, err = t.Holds(t.arriving()); err != nil || !as || !whole {
			return err
		}
		placed, writings, err := t.elements()
		as, t.looked = maps.Equal(placed, t.placed) && writings == t.writings, time.Now()
		return err
	})
	if whole {
		t.epoch = epoch
	}
	if err != nil || !as {
		t.known = false
		return true
	}
	return false
}
