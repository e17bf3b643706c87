package linkcheck

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

func drawFrame(t *rapid.T) ccm {
	id := rapid.Custom(func(t *rapid.T) hello.ID { return hello.ID(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "id")) })
	return ccm{
		node: rapid.StringMatching(`[a-z0-9.-]{1,253}`).Draw(t, "node"), from: id.Draw(t, "from"),
		boot: rapid.Uint64().Draw(t, "boot"), number: rapid.Uint64().Draw(t, "number"),
		heard: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) heard { return heard{id.Draw(t, "of"), rapid.Uint32().Draw(t, "its")} }), 0, maxHeard).Draw(t, "heard"),
	}
}

func TestFramesCarryEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawFrame(t)
		padded := append(enclose(append(want.encode(), "more of tomorrow"...)), make([]byte, 46)...)
		if len(enclose(want.encode()))+32 > 1280 {
			t.Fatalf("%d bytes", len(padded))
		}
		b, ok := disclose(padded)
		if !ok {
			t.Fatal("it cannot be disclosed")
		}
		got, reason := decode(b)
		if len(want.heard) == 0 {
			want.heard = nil
		}
		if reason != "" || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v (%s), want %+v", got, reason, want)
		}
	})
}

func TestFramesThatCannotBeRead(t *testing.T) {
	good := ccm{node: "a", heard: []heard{{}}}.encode()
	change := func(at int, to byte) []byte { b := bytes.Clone(good); b[at] = to; return b }
	for name, c := range map[string]struct {
		b    []byte
		want hello.Reason
	}{
		"good":                  {good, ""},
		"empty":                 {nil, hello.ReasonMagic},
		"another protocol":      {change(0, 'X'), hello.ReasonMagic},
		"version of tomorrow":   {change(4, 2), hello.ReasonVersion},
		"no name":               {change(5, 0), hello.ReasonMalformed},
		"name beyond the end":   {change(5, 200), hello.ReasonMalformed},
		"more than fit":         {change(26, 255), hello.ReasonMalformed},
		"beyond the end":        {change(27, 2), hello.ReasonMalformed},
		"cut short in a number": {good[:len(good)-1], hello.ReasonMalformed},
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
	f.Add(enclose(ccm{node: "a", heard: []heard{{hello.ID{1}, 2}}}.encode()))
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, ok := disclose(payload)
		if !ok {
			return
		}
		got, reason := decode(b)
		if reason == "" && !bytes.HasPrefix(b, got.encode()) {
			t.Errorf("%x was read as %+v", b, got)
		}
	})
}
