package linkcheck

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

func drawFrame(t *rapid.T) ccm {
	id := rapid.Custom(func(t *rapid.T) hello.ID { return hello.ID(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "id")) })
	return ccm{
		Node: rapid.StringMatching(`[a-z0-9.-]{1,253}`).Draw(t, "node"), From: id.Draw(t, "from"),
		Boot: rapid.Uint64().Draw(t, "boot"), Number: rapid.Uint64().Draw(t, "number"),
		Heard: rapid.MapOfN(id, rapid.Uint32(), 0, maxHeard).Draw(t, "heard"),
	}
}

func TestFramesCarryEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawFrame(t)
		padded := append(enclose(want.encode()), make([]byte, 46)...)
		if len(enclose(want.encode()))+32 > 1280 {
			t.Fatalf("%d bytes", len(padded))
		}
		b, ok := disclose(padded)
		if !ok {
			t.Fatal("it cannot be disclosed")
		}
		got, reason := decode(b)
		if len(want.Heard) == 0 {
			want.Heard = nil
		}
		if reason != "" || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v (%s), want %+v", got, reason, want)
		}
	})
}

func TestFramesThatCannotBeRead(t *testing.T) {
	good := ccm{Node: "a", Heard: map[hello.ID]uint32{{}: 1}}.encode()
	tomorrow := append(append([]byte(magic), version), "\xa2\x01\x61a\x18\x63\x01"...) // of number 99
	change := func(at int, to byte) []byte { b := bytes.Clone(good); b[at] = to; return b }
	for name, c := range map[string]struct {
		b    []byte
		want hello.Reason
	}{
		"good":                  {good, ""},
		"empty":                 {nil, hello.ReasonMagic},
		"another protocol":      {change(0, 'X'), hello.ReasonMagic},
		"version of tomorrow":   {change(4, 2), hello.ReasonVersion},
		"no name":               {ccm{Boot: 1}.encode(), hello.ReasonMalformed},
		"no map":                {change(headerSize, 0), hello.ReasonMalformed},
		"cut short in a number": {good[:len(good)-1], hello.ReasonMalformed},
		"more behind":           {append(good, 0), hello.ReasonMalformed},
		"a field of tomorrow":   {tomorrow, ""},
	} {
		if _, reason := decode(c.b); reason != c.want {
			t.Errorf("%s: %q, want %q", name, reason, c.want)
		}
	}
	for _, b := range [][]byte{nil, {0}, {0, 1}, {255, 255, 1}} {
		if _, ok := disclose(b); ok {
			t.Errorf("%v was disclosed", b)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(enclose(ccm{Node: "a", Heard: map[hello.ID]uint32{{1}: 2}}.encode()))
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, ok := disclose(payload)
		if !ok {
			return
		}
		got, reason := decode(b)
		if reason != "" {
			return
		}
		if again, reason := decode(got.encode()); reason != "" || !cmp.Equal(got, again, cmpopts.EquateEmpty()) {
			t.Errorf("%x was read as %+v, and %+v again (%s)", b, got, again, reason)
		}
	})
}
