package nftable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	nft "github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Batch is a transaction that is being composed.
type Batch struct {
	Conn *nft.Conn
	err  error
	// described are the sets that have user data, by name.
	described map[string][]byte
}

// Note takes in an error of composing, with which the transaction fails.
func (b *Batch) Note(err error) { b.err = errors.Join(b.err, err) }

// AddSet adds a set or map with user data, from which the nft program knows what its keys and values are.
func (b *Batch) AddSet(s *nft.Set, userData []byte) {
	b.Note(b.Conn.AddSet(s, nil))
	if len(userData) > 0 {
		if b.described == nil {
			b.described = map[string][]byte{}
		}
		b.described[s.Name] = userData
	}
}

// describe returns the message with the user data of the set that it adds. The library has none but its own.
func (b *Batch) describe(m netlink.Message) netlink.Message {
	if len(b.described) == 0 || m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSET {
		return m
	}
	const header = 4 // struct nfgenmsg
	if data := b.described[nfnetlink.Text(m.Data[header:], unix.NFTA_SET_NAME)]; data != nil {
		m.Data = nfnetlink.Attributes(m.Data).Add(unix.NFTA_SET_USERDATA, data...)
	}
	return m
}

// errRecorded stands for the kernel's receipts.
var errRecorded = errors.New("recorded and not sent")

// Record returns what the library would send, or the error of composing it. It is not left to send it: it makes
// tables without flags, and waits for a receipt of each message, which never comes where the kernel refuses a
// transaction as a whole.
func Record(compose func(b *Batch)) ([]netlink.Message, error) {
	var all []netlink.Message
	conn, err := nft.New(nft.WithTestDial(func(batch []netlink.Message) ([]netlink.Message, error) {
		if len(batch) > 0 {
			all = batch[1 : len(batch)-1] // without what begins and ends it
		}
		return nil, errRecorded
	}))
	if err != nil {
		return nil, fmt.Errorf("compose a transaction of nf_tables: %w", err)
	}
	b := &Batch{Conn: conn}
	compose(b)
	if err := conn.Flush(); err != nil && !errors.Is(err, errRecorded) {
		b.Note(err)
	}
	for i := range all {
		h := &all[i].Header
		*h = netlink.Header{Type: h.Type, Flags: h.Flags &^ unix.NLM_F_ECHO}
		all[i] = directed(b.describe(all[i]))
	}
	if b.err != nil {
		return nil, fmt.Errorf("compose a transaction of nf_tables: %w", b.err)
	}
	return all, nil
}

// Chains adds chains to a table, which may lead to each other.
func (b *Batch) Chains(t *Table, all []Chain) {
	for _, c := range all {
		added := &nft.Chain{Name: c.Name, Table: t.NFT, Type: c.At.Kind}
		if c.At.Kind != "" {
			added.Hooknum, added.Priority = &c.At.Number, &c.At.Priority
		}
		b.Conn.AddChain(added)
	}
	for _, c := range all {
		for _, r := range c.Rules {
			b.Conn.AddRule(&nft.Rule{
				Table: t.NFT, Chain: &nft.Chain{Name: c.Name, Table: t.NFT}, Exprs: r.Exprs,
				UserData: userdata.AppendString(nil, userdata.TypeComment, t.Stamp(r)),
			})
		}
	}
}

// messageSize bounds the elements of one message: the length of an attribute
// has 16 bits.
const messageSize = 48 << 10

// InMessages splits elements into messages that are not too large.
func (b *Batch) InMessages(all []nft.SetElement, send func([]nft.SetElement) error) {
	const headers = 64 // more than all attributes of an element add to what they hold
	size, begin := 0, 0
	for i, e := range all {
		more := headers + len(e.Key) + len(e.Val) + len(e.Comment)
		if e.VerdictData != nil {
			more += len(e.VerdictData.Chain)
		}
		if size+more > messageSize {
			b.Note(send(all[begin:i]))
			size, begin = 0, i
		}
		size += more
	}
	if begin < len(all) {
		b.Note(send(all[begin:]))
	}
}

// directed returns a message in which a rule that loads what a connection was first sent to says so as nft does,
// which aborts at rules that do not: the library has no keys for the addresses of one family, and tells
// the direction in four bytes, where the kernel takes one and complains in its log.
func directed(m netlink.Message) netlink.Message {
	if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE || !bytes.Contains(m.Data, []byte("ct\x00")) {
		return m
	}
	header := m.Data[:4] // struct nfgenmsg
	out := append(nfnetlink.Attributes(nil), header...)
	nfnetlink.Each(m.Data[len(header):], func(kind uint16, value []byte) {
		if kind != unix.NFTA_RULE_EXPRESSIONS {
			out = out.Add(kind, value...)
			return
		}
		var list int
		out, list = out.Open(kind)
		nfnetlink.Each(value, func(kind uint16, e []byte) {
			if direction := nfnetlink.Find(e, unix.NFTA_EXPR_DATA, unix.NFTA_CT_DIRECTION); nfnetlink.Text(e, unix.NFTA_EXPR_NAME) != "ct" || len(direction) != 4 {
				out = out.Add(kind|unix.NLA_F_NESTED, e...)
				return
			}
			out = out.Nested(kind, loading(e, header[0]))
		})
		out = out.Close(list)
	})
	m.Data = out
	return m
}

// loading returns such an expression as nft writes it.
func loading(e []byte, protocol byte) nfnetlink.Attributes {
	data := nfnetlink.Find(e, unix.NFTA_EXPR_DATA)
	key, _ := nfnetlink.Number(data, unix.NFTA_CT_KEY)
	if key == unix.NFT_CT_DST {
		key = unix.NFT_CT_DST_IP
		if protocol == unix.NFPROTO_IPV6 {
			key = unix.NFT_CT_DST_IP6
		}
	}
	into, _ := nfnetlink.Number(data, unix.NFTA_CT_DREG)
	direction, _ := nfnetlink.Number(data, unix.NFTA_CT_DIRECTION)
	return nfnetlink.Attributes(nil).Text(unix.NFTA_EXPR_NAME, "ct").Nested(unix.NFTA_EXPR_DATA,
		nfnetlink.Attributes(nil).Uint32(unix.NFTA_CT_KEY, key).Uint32(unix.NFTA_CT_DREG, into).Add(unix.NFTA_CT_DIRECTION, byte(direction)))
}

// undirected returns the key by which the library knows what the kernel loads.
func undirected(key []byte) []byte {
	if len(key) == 4 && (key[3] == unix.NFT_CT_DST_IP || key[3] == unix.NFT_CT_DST_IP6) {
		return binary.BigEndian.AppendUint32(nil, unix.NFT_CT_DST)
	}
	return key
}
