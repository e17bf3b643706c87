package nfnetlink

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// TestAttributes writes attributes and finds them again.
func TestAttributes(t *testing.T) {
	inner := Attributes(nil).Uint16(1|unix.NLA_F_NET_BYTEORDER, 8080).Text(2, "a name")
	all := Attributes(nil).Add(7, 9).Nested(8, inner).Uint32(9, 1<<30)
	if len(all)%4 != 0 {
		t.Errorf("%d bytes are not aligned", len(all))
	}
	if n, ok := Number(all, 7); n != 9 || !ok {
		t.Errorf("one byte reads %d, %t", n, ok)
	}
	if n, ok := Number(all, 8, 1); n != 8080 || !ok {
		t.Errorf("two bytes read %d, %t", n, ok)
	}
	if n, ok := Number(all, 9); n != 1<<30 || !ok {
		t.Errorf("four bytes read %d, %t", n, ok)
	}
	if got := Text(all, 8, 2); got != "a name" {
		t.Errorf("a text reads %q", got)
	}
	if _, ok := Number(all, 8, 3); ok || Find(all, 3, 3) != nil || Text(all, 3) != "" {
		t.Error("what is not there is found")
	}
}

// TestErrors holds that the kernel's refusal can be told.
func TestErrors(t *testing.T) {
	err := Request(unix.NFNL_SUBSYS_NFTABLES, 999, unix.NLM_F_ACK, addr.IPv4, nil, func([]byte) {})
	var errno unix.Errno
	if !errors.As(err, &errno) || Again(err) {
		t.Errorf("an unknown command: %v", err)
	}
}

// TestConn holds that a refusal can be told, and is not taken for the next answer.
func TestConn(t *testing.T) {
	var c Conn
	for range 2 {
		err := c.Request(unix.NFNL_SUBSYS_NFTABLES, 999, unix.NLM_F_ACK, addr.IPv4, nil, func([]byte) { t.Error("an answer to an unknown command") })
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("an unknown command: %v", err)
		}
		for range 2 {
			answers := 0
			err = c.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, 0, nil, func(answer []byte) {
				if _, ok := Number(answer, unix.NFTA_GEN_ID); ok {
					answers++
				}
			})
			if err != nil || answers != 1 {
				t.Errorf("%d answers to the question for the generation: %v", answers, err)
			}
		}
	}
}

// FuzzEach holds that no answer, however odd, ends the process, and that what is
// whole is read as it was written.
func FuzzEach(f *testing.F) {
	f.Add([]byte(Attributes(nil).Text(1, "x").Nested(2, Attributes(nil).Uint32(3, 4))))
	f.Add([]byte{3, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var again Attributes
		Each(data, func(kind uint16, value []byte) {
			again = again.Add(kind, value...)
			Text(value, 1)
		})
		var third Attributes
		Each(again, func(kind uint16, value []byte) { third = third.Add(kind, value...) })
		if !bytes.Equal(again, third) {
			t.Errorf("%x reads as %x and then as %x", data, again, third)
		}
	})
}

// FuzzReceipts holds that no answer, however odd, ends the process.
func FuzzReceipts(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Add([]byte{3, 0, 0, 0})
	f.Fuzz(func(t *testing.T, said []byte) {
		told := 0
		eachReceipt(said, func(uint32, unix.Errno) { told++ })
		if told > len(said)/20 {
			t.Errorf("%x: %d receipts are told", said, told)
		}
	})
}

// FuzzReply holds that no answer, however odd, ends the process, that one which ends is the last one that is read, and that
// those to another request count for nothing.
func FuzzReply(f *testing.F) {
	const ours = 7
	m := func(kind, flags uint16, sequence uint32) []byte {
		return Attributes(nil).message(kind, flags, sequence, 2, 0, func(a Attributes) Attributes { return a.Uint32(1, 4) })
	}
	f.Add(m(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, unix.NLM_F_MULTI, ours))
	f.Add(append(m(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, unix.NLM_F_MULTI, ours), m(unix.NLMSG_DONE, 0, ours)...))
	f.Add(m(unix.NLMSG_ERROR, 0, ours+1))
	f.Fuzz(func(t *testing.T, said []byte) {
		answers := 0
		r := reply{sequence: ours, f: func([]byte) { answers++ }}
		eachMessage(said, func(m message) bool {
			if r.over {
				t.Errorf("%x: more is read after the end", said)
			}
			before := answers
			more := r.read(m)
			if m.sequence != ours && (!more || answers != before) {
				t.Errorf("%x: an answer to another request counts", said)
			}
			return more
		})
		if answers > len(said)/unix.SizeofNlMsghdr || r.result != nil && !r.over {
			t.Errorf("%x: %d answers, %v", said, answers, r.result)
		}
	})
}
