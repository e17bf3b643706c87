package hello

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawID(t *rapid.T) ID { return ID(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "id")) }

func drawInterface(t *rapid.T) Interface {
	return Interface{
		ID: drawID(t), CutOff: rapid.Bool().Draw(t, "cut off"),
		Subnets: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
			a := drawAddr(t)
			return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
		}), 0, maxSubnets+1).Draw(t, "subnets"),
		Heard: rapid.SliceOfN(rapid.Custom(drawID), 0, MaxHeard+1).Draw(t, "heard"),
	}
}

// Who says that it lacks an address has told all subnets that it has; who has said too little
// for that, or nothing, as older releases, is not taken to lack any.
func TestWhatIsNotToldIsNotLacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have := rapid.SliceOfN(rapid.Custom(drawInterface), 0, maxInterfaces+1).Draw(t, "interfaces")
		h, ok := decode(encoded(hello{Node: "a", said: saying(Wanted{Interfaces: have}, rapid.IntRange(-100, 1200).Draw(t, "room"))}))
		if !ok {
			t.Fatal("it cannot be read")
		}
		m, a := h.member(), drawAddr(t)
		if rapid.Bool().Draw(t, "near") && len(have) > 0 && len(have[0].Subnets) > 0 {
			a = have[0].Subnets[0].Addr()
		}
		has := slices.ContainsFunc(have, func(i Interface) bool {
			return slices.ContainsFunc(i.Subnets, func(p netip.Prefix) bool {
				return p.Contains(a) && !p.IsSingleIP() && !p.Masked().Addr().IsLinkLocalUnicast() && !p.Masked().Addr().Is4In6()
			})
		})
		switch {
		case m.Has(a) && !has:
			t.Fatalf("%v is said to be in a subnet of %v", a, have)
		case m.Lacks(a) && has:
			t.Fatalf("%v is said to be in no subnet of %v", a, have)
		case m.Lacks(a) && len(have) == 0:
			t.Fatal("a node that told nothing lacks something")
		}
	})
	if s := saying(Wanted{Interfaces: []Interface{{ID: ID{1}}}}, -100); len(s.Unable) > 0 {
		t.Error("for want of room a node is unable that said nothing of it")
	}
}

// A body that a node seals is known to nodes with the same key, and to no others.
func TestSealed(t *testing.T) {
	of := func(key string) *Mesh {
		m, err := New(Config{Node: "a", Port: 1, Interval: 50 * time.Millisecond, Multiplier: 3})
		if err != nil {
			t.Fatal(err)
		}
		m.Set(Wanted{Key: []byte(key)})
		return m
	}
	one, other, none := of("one"), of("other"), of("")
	sealed := one.Seal([]byte("body"))
	if len(sealed) != 1 || len(none.Seal([]byte("body"))) != 0 {
		t.Fatalf("%d datagrams", len(sealed))
	}
	if body, reason := one.Unseal(sealed[0]); string(body) != "body" || reason != "" {
		t.Errorf("%q, %s", body, reason)
	}
	for want, m := range map[Reason]*Mesh{ReasonMAC: other, ReasonNoKey: none} {
		if _, reason := m.Unseal(sealed[0]); reason != want {
			t.Errorf("rejected for %q, want %q", reason, want)
		}
	}
	if _, reason := one.Unseal([]byte("short")); reason != ReasonMalformed {
		t.Errorf("rejected for %q", reason)
	}
}
