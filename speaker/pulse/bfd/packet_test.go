package bfd

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// sample is an Up packet as FRR sends one.
func sample() Packet {
	return Packet{
		Diag: NeighborDown, State: Up, Poll: true, Independent: true, Multiplier: 3,
		My: 0x01020304, Your: 0xa0b0c0d0,
		DesiredTx: 300 * time.Millisecond, RequiredRx: 50 * time.Millisecond, RequiredEcho: 50 * time.Microsecond,
	}
}

var sampleBytes = []byte{
	0x23, 0xe8, 3, 24, 1, 2, 3, 4, 0xa0, 0xb0, 0xc0, 0xd0,
	0, 4, 0x93, 0xe0, 0, 0, 0xc3, 0x50, 0, 0, 0, 50,
}

func TestPacketsAreAsRFC5880HasThem(t *testing.T) {
	if got := sample().Append(nil); !bytes.Equal(got, sampleBytes) {
		t.Errorf("written as %x, want %x", got, sampleBytes)
	}
	got, err := Parse(append(bytes.Clone(sampleBytes), 0xff)) // what follows the packet is nobody's business
	if err != nil || got != sample() {
		t.Errorf("read as %+v, %v, want %+v", got, err, sample())
	}
	if half := (Packet{DesiredTx: 1500}).Append(nil); half[15] != 2 {
		t.Errorf("1.5 µs are written as %d µs", half[15])
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"an empty datagram":       {func([]byte) []byte { return nil }, errLength},
		"a short one":             {func(b []byte) []byte { return b[:23] }, errLength},
		"a length beyond the end": {func(b []byte) []byte { b[3] = 25; return b }, errLength},
		"a length below 24":       {func(b []byte) []byte { b[3] = 23; return b }, errLength},
		"version 0":               {func(b []byte) []byte { b[0] &= 0x1f; return b }, errVersion},
		"version 2":               {func(b []byte) []byte { b[0] = 0x40; return b }, errVersion},
		"multiplier 0":            {func(b []byte) []byte { b[2] = 0; return b }, errMultiplier},
		"multipoint":              {func(b []byte) []byte { b[1] |= 1; return b }, errMultipoint},
		"a password": {func(b []byte) []byte {
			b[1] |= 4
			b[3] = 33
			return append(b, 1, 9, 1, 's', 'e', 'c', 'r', 'e', 't')
		}, errAuth},
		"no discriminator":           {func(b []byte) []byte { clear(b[4:8]); return b }, errMine},
		"Up without ours":            {func(b []byte) []byte { clear(b[8:12]); return b }, errYours},
		"Init without ours":          {func(b []byte) []byte { clear(b[8:12]); b[1] = 0x80; return b }, errYours},
		"Down without ours is fine":  {func(b []byte) []byte { clear(b[8:12]); b[1] = 0x40; return b }, nil},
		"so is AdminDown without it": {func(b []byte) []byte { clear(b[8:12]); b[1] = 0; return b }, nil},
	} {
		if _, err := Parse(c.change(bytes.Clone(sampleBytes))); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sampleBytes)
	f.Add(Packet{State: Down, Multiplier: 1, My: 1}.Append(nil))
	f.Add(append(bytes.Clone(sampleBytes), 1, 9, 1, 's'))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			return
		}
		b := p.Append(nil)
		if len(b) != packetSize || !bytes.Equal(b[:3], data[:3]) || !bytes.Equal(b[4:], data[4:packetSize]) {
			t.Fatalf("%x was read as %+v and written as %x", data, p, b)
		}
		if _ = p.State.String() + p.Diag.String(); p.DesiredTx < 0 || p.RequiredRx < 0 || p.RequiredEcho < 0 {
			t.Fatalf("negative intervals in %+v", p)
		}
	})
}
