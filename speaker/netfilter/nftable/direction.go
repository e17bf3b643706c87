package nftable

import (
	"bytes"
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

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
	if key == unix.NFT_CT_SRC || key == unix.NFT_CT_DST {
		key += unix.NFT_CT_SRC_IP - unix.NFT_CT_SRC
		if protocol == unix.NFPROTO_IPV6 {
			key += unix.NFT_CT_SRC_IP6 - unix.NFT_CT_SRC_IP
		}
	}
	into, _ := nfnetlink.Number(data, unix.NFTA_CT_DREG)
	direction, _ := nfnetlink.Number(data, unix.NFTA_CT_DIRECTION)
	return nfnetlink.Attributes(nil).Text(unix.NFTA_EXPR_NAME, "ct").Nested(unix.NFTA_EXPR_DATA,
		nfnetlink.Attributes(nil).Uint32(unix.NFTA_CT_KEY, key).Uint32(unix.NFTA_CT_DREG, into).Add(unix.NFTA_CT_DIRECTION, byte(direction)))
}

// undirected returns the key by which the library knows what the kernel loads.
func undirected(key []byte) []byte {
	if len(key) == 4 {
		switch key[3] {
		case unix.NFT_CT_SRC_IP, unix.NFT_CT_SRC_IP6:
			return binary.BigEndian.AppendUint32(nil, unix.NFT_CT_SRC)
		case unix.NFT_CT_DST_IP, unix.NFT_CT_DST_IP6:
			return binary.BigEndian.AppendUint32(nil, unix.NFT_CT_DST)
		}
	}
	return key
}
