package nftable

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Stamp returns the comment of a rule in the kernel: what it says, and a digest of what it does. The kernel's rule
// is held against it, so that no process takes a rule for its own that others have replaced.
func (t *Table) Stamp(r Rule) string {
	var all []byte
	for _, e := range r.Exprs {
		// What cannot be marshalled fails to be sent.
		data, _ := expr.Marshal(byte(t.NFT.Family), e)
		all = append(all, canonical(data)...)
	}
	return r.Says + " " + t.digest(all)
}

func (t *Table) digest(expressions []byte) string {
	sum := sha256.Sum256(slices.Concat(t.Salt, expressions))
	return hex.EncodeToString(sum[:6])
}

// StampOf returns the stamp of a rule in the kernel, "" of one that does something else than its stamp says.
// The comment is a type, a length and a text that ends in zero.
func (t *Table) StampOf(rule []byte) string {
	comment := nfnetlink.Find(rule, unix.NFTA_RULE_USERDATA)
	if len(comment) < 2 || int(comment[1]) != len(comment)-2 {
		return ""
	}
	stamp := strings.TrimSuffix(string(comment[2:]), "\x00")
	var all []byte
	nfnetlink.Each(nfnetlink.Find(rule, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
		all = append(all, canonical(e)...)
	})
	if !strings.HasSuffix(stamp, " "+t.digest(all)) {
		return ""
	}
	return stamp
}

// form is how an attribute of an expression is compared.
type form uint8

const (
	raw      form = iota
	register      // the kernel tells those of 4 bytes that begin one of 16 by the number of the latter
	nested        // a value or a verdict
	ctKey         // see directed
)

// compared are the attributes by kind that say what an expression does. The kernel tells others, too: counts,
// defaults, and what it derives.
var compared = map[string]map[uint16]form{
	"bitwise": {
		unix.NFTA_BITWISE_SREG: register, unix.NFTA_BITWISE_DREG: register, unix.NFTA_BITWISE_LEN: raw,
		unix.NFTA_BITWISE_MASK: nested, unix.NFTA_BITWISE_XOR: nested,
	},
	"cmp": {unix.NFTA_CMP_SREG: register, unix.NFTA_CMP_OP: raw, unix.NFTA_CMP_DATA: nested},
	"ct":  {unix.NFTA_CT_DREG: register, unix.NFTA_CT_KEY: ctKey, unix.NFTA_CT_DIRECTION: raw, unix.NFTA_CT_SREG: register},
	"dup": {unix.NFTA_DUP_SREG_ADDR: register, unix.NFTA_DUP_SREG_DEV: register},
	"dynset": {
		unix.NFTA_DYNSET_SET_NAME: raw, unix.NFTA_DYNSET_OP: raw, unix.NFTA_DYNSET_SREG_KEY: register, unix.NFTA_DYNSET_SREG_DATA: register,
	},
	"fib":       {unix.NFTA_FIB_DREG: register, unix.NFTA_FIB_RESULT: raw, unix.NFTA_FIB_FLAGS: raw},
	"immediate": {unix.NFTA_IMMEDIATE_DREG: register, unix.NFTA_IMMEDIATE_DATA: nested},
	"lookup":    {unix.NFTA_LOOKUP_SET: raw, unix.NFTA_LOOKUP_SREG: register, unix.NFTA_LOOKUP_DREG: register, unix.NFTA_LOOKUP_FLAGS: raw},
	"masq":      {unix.NFTA_MASQ_FLAGS: raw},
	"meta":      {unix.NFTA_META_DREG: register, unix.NFTA_META_KEY: raw, unix.NFTA_META_SREG: register},
	"nat":       {unix.NFTA_NAT_TYPE: raw, unix.NFTA_NAT_FAMILY: raw, unix.NFTA_NAT_REG_ADDR_MIN: register, unix.NFTA_NAT_REG_PROTO_MIN: register},
	"numgen":    {unix.NFTA_NG_DREG: register, unix.NFTA_NG_MODULUS: raw, unix.NFTA_NG_TYPE: raw, unix.NFTA_NG_OFFSET: raw},
	"payload": {
		unix.NFTA_PAYLOAD_DREG: register, unix.NFTA_PAYLOAD_BASE: raw, unix.NFTA_PAYLOAD_OFFSET: raw, unix.NFTA_PAYLOAD_LEN: raw,
		unix.NFTA_PAYLOAD_SREG: register, unix.NFTA_PAYLOAD_CSUM_TYPE: raw, unix.NFTA_PAYLOAD_CSUM_OFFSET: raw,
	},
	"reject": {unix.NFTA_REJECT_TYPE: raw, unix.NFTA_REJECT_ICMP_CODE: raw},
}

// canonical is what an expression does, the same as it is sent and as the kernel tells it: attributes in the
// order of their kinds, without those that are zero.
func canonical(expression []byte) []byte {
	name := nfnetlink.Text(expression, unix.NFTA_EXPR_NAME)
	data := nfnetlink.Find(expression, unix.NFTA_EXPR_DATA)
	out := nfnetlink.Attributes{}.Text(unix.NFTA_EXPR_NAME, name)
	for kind := range uint16(32) {
		as, is := compared[name][kind]
		value := nfnetlink.Find(data, kind)
		if is && len(bytes.Trim(value, "\x00")) > 0 {
			out = out.Add(kind, as.canonical(value)...)
		}
	}
	return out
}

func (f form) canonical(value []byte) []byte {
	switch {
	case f == register && len(value) == 4:
		if n := binary.BigEndian.Uint32(value); n >= unix.NFT_REG_1 && n <= unix.NFT_REG_4 {
			return binary.BigEndian.AppendUint32(nil, unix.NFT_REG32_00+4*(n-unix.NFT_REG_1))
		}
	case f == ctKey:
		return undirected(value)
	case f == nested:
		verdict := nfnetlink.Find(value, unix.NFTA_DATA_VERDICT)
		return bytes.Join([][]byte{
			nfnetlink.Find(value, unix.NFTA_DATA_VALUE), nfnetlink.Find(verdict, unix.NFTA_VERDICT_CODE), nfnetlink.Find(verdict, unix.NFTA_VERDICT_CHAIN),
		}, []byte{','})
	}
	return value
}
