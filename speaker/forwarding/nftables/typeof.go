package nftables

import (
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// The nft program reads a set as it shows it if the types have names. A number that a rule chooses has none: of sets of
// slots the user data says by which expressions the keys are made, as nft itself has that for "typeof". The kernel keeps
// user data and does not read it. This is all of nft's format that is needed (its sources: src/expression.c, and udata.h of libnftnl).
const (
	setDataOrder  = 1 // of a set: how its values are ordered,
	setKeyTypeof  = 3 // what makes its keys,
	setDataTypeof = 4 // and its values
	hostOrder     = 1

	exprPayload = 7
	exprMeta    = 9
	exprConcat  = 13
	exprNumgen  = 23

	headerTransport = 11
	headerIPv4      = 12
	headerIPv6      = 13
	portField       = 2
)

func userData(kind byte, value ...byte) []byte {
	return append([]byte{kind, byte(len(value))}, value...)
}

func userNumber(kind byte, n uint32) []byte { return userData(kind, number(n)...) }

// exprData is an expression: its kind, and what it is made of.
func exprData(kind uint32, of ...[]byte) []byte {
	return append(userNumber(0, kind), userData(1, slices.Concat(of...)...)...)
}

func metaData(key uint32) []byte { return exprData(exprMeta, userNumber(0, key)) }

func payloadData(header, field uint32) []byte {
	return exprData(exprPayload, userNumber(0, header), userNumber(1, field))
}

func concatData(parts ...[]byte) []byte {
	for i, p := range parts {
		parts[i] = userData(byte(i), p...)
	}
	return exprData(exprConcat, parts...)
}

// userData is by what nft knows how to read a set again, nil where the types say all.
func (l *layout) userData(id setID) []byte {
	header, destination := uint32(headerIPv4), uint32(12)
	if l.Family == addr.IPv6 {
		header, destination = headerIPv6, 9
	}
	address, port := payloadData(header, destination), payloadData(headerTransport, portField)
	key := [][]byte{address, metaData(unix.NFT_META_L4PROTO), port, exprData(exprNumgen, userNumber(0, unix.NFT_NG_RANDOM), userNumber(1, 1), userNumber(2, 0))}
	switch id {
	case nodeEndpoints, nodeAffinitySlots:
		key = key[1:]
	default:
	}
	switch id {
	case endpoints, nodeEndpoints:
		return append(userData(setKeyTypeof, concatData(key...)...), userData(setDataTypeof, concatData(address, port)...)...)
	case affinitySlots, nodeAffinitySlots:
		return slices.Concat(userNumber(setDataOrder, hostOrder),
			userData(setKeyTypeof, concatData(key...)...), userData(setDataTypeof, metaData(unix.NFT_META_PRIORITY)...))
	case affinityPorts, nodeAffinityPorts, affinity:
		return userNumber(setDataOrder, hostOrder)
	default:
		return nil
	}
}
