package nftable

import (
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
