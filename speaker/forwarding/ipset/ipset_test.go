package ipset

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// TestSets makes a set of each type, fills it over several messages, reads it back,
// and takes elements out.
func TestSets(t *testing.T) {
	a, seed := netip.MustParseAddr, maphash.MakeSeed()
	address := func(family addr.Family, i int) netip.Addr {
		if family == addr.IPv4 {
			return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		}
		return netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)})
	}
	for _, test := range []struct {
		Type
		addr.Family
		element func(f addr.Family, i int) Element
	}{
		{HashNet, addr.IPv4, func(f addr.Family, i int) Element {
			return Element{Prefix: netip.PrefixFrom(address(f, i*4), 30)}
		}},
		{HashNet, addr.IPv6, func(f addr.Family, i int) Element {
			return Element{Prefix: netip.PrefixFrom(address(f, i*4), 126)}
		}},
		{HashIP, addr.IPv4, func(f addr.Family, i int) Element { return Element{Prefix: addr.HostPrefix(address(f, i))} }},
		{HashIP, addr.IPv6, func(f addr.Family, i int) Element { return Element{Prefix: addr.HostPrefix(address(f, i))} }},
		{HashIPPort, addr.IPv4, func(f addr.Family, i int) Element {
			return Element{Prefix: addr.HostPrefix(address(f, i)), Protocol: 17, Port: uint16(i + 1)}
		}},
		{HashIPPort, addr.IPv6, func(f addr.Family, i int) Element {
			return Element{Prefix: addr.HostPrefix(address(f, i)), Protocol: 132, Port: uint16(i + 1)}
		}},
		{HashIPPortIP, addr.IPv4, func(f addr.Family, i int) Element {
			return Element{addr.HostPrefix(address(f, i)), address(f, i+1), 6, uint16(i + 1)}
		}},
		{HashIPPortIP, addr.IPv6, func(f addr.Family, i int) Element {
			return Element{addr.HostPrefix(address(f, i)), address(f, i+1), 6, uint16(i + 1)}
		}},
		{BitmapPort, 0, func(_ addr.Family, i int) Element { return Element{Port: uint16(i)} }},
	} {
		t.Run(fmt.Sprint(test.Type, test.Family), func(t *testing.T) {
			spec := Spec{Name: "ours", Type: test.Type, Family: test.Family, MaxElements: 100000}
			if test.Type == BitmapPort {
				spec.MaxElements = 0
			}
			var want []Element
			for i := range 2*batch + 7 {
				want = append(want, test.element(test.Family, i))
			}
			var got, less []Element
			var head Header
			var err error
			netlab.NewHost(t, "node").Do(func() {
				err = errors.Join(Create(spec, 0), Add("ours", want), Add("ours", want[3:9]))
				head, _ = Look(new(nfnetlink.Conn), "ours")
				got, _ = Elements("ours")
				digest := func() (sum uint64) {
					scanned := 0
					sum, failed := Scan(new(nfnetlink.Conn), "ours", seed, func(Element) { scanned++ })
					if alone, again := Scan(new(nfnetlink.Conn), "ours", seed, nil); alone != sum || failed != nil || again != nil || scanned != len(want) {
						t.Errorf("the digests of %d elements are %x and %x: %v, %v; want the same of %d", scanned, sum, alone, failed, again, len(want))
					}
					return sum
				}
				was := digest()
				err = errors.Join(err, Delete("ours", want[5:6]), Add("ours", []Element{test.element(test.Family, len(want)+1)}))
				if is := digest(); is == was {
					t.Errorf("another element in place of one leaves the digest %x", is)
				}
				err = errors.Join(err, Delete("ours", []Element{test.element(test.Family, len(want)+1)}), Delete("ours", want[1:]), Delete("ours", want[1:3]))
				less, _ = Elements("ours")
				err = errors.Join(err, Flush("ours"), Destroy("ours"))
			})
			if err != nil {
				t.Fatal(err)
			}
			if head != (Header{spec, len(want)}) {
				t.Errorf("header %+v, want %+v of %d elements", head, spec, len(want))
			}
			slices.SortFunc(got, compare)
			slices.SortFunc(want, compare)
			if !slices.Equal(got, want) {
				t.Errorf("%d elements, want %d: %v", len(got), len(want), got[:min(3, len(got))])
			}
			if len(less) != 1 {
				t.Errorf("after deleting all but one there are %d", len(less))
			}
		})
	}
	if got := (Element{addr.HostPrefix(a("fd00::1")), a("fd00::2"), 6, 80}).String(); got != "fd00::1,6:80,fd00::2" {
		t.Errorf("an element is %q", got)
	}
}

func compare(a, b Element) int {
	if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
		return c
	}
	return int(a.Port) - int(b.Port)
}

// TestErrors holds that what the kernel refuses has a name and names the set.
func TestErrors(t *testing.T) {
	host := func(n byte) Element { return Element{Prefix: addr.HostPrefix(netip.AddrFrom4([4]byte{10, 0, 0, n}))} }
	small := Spec{Name: "small", Type: HashIP, Family: addr.IPv4, MaxElements: 100}
	var many []Element
	for i := range 3 * batch {
		many = append(many, Element{Prefix: addr.HostPrefix(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))})
	}
	for _, test := range []struct {
		name string
		do   func() error
		want error
	}{
		{"no such set", func() error { return Add("none", []Element{host(1)}) }, ErrMissing},
		{"look at none", func() error { _, err := Look(new(nfnetlink.Conn), "none"); return err }, ErrMissing},
		{"twice", func() error { return errors.Join(Create(small, 0), Create(small, 0)) }, ErrExists},
		{"no such type", func() error { return Create(Spec{Name: "odd", Type: "hash:odd", Family: addr.IPv4}, 0) }, ErrType},
		{"full", func() error { return errors.Join(Create(small, 0), Add("small", many)) }, ErrFull},
		{"another family", func() error {
			return errors.Join(Create(small, 0), Add("small", []Element{host(1), {Prefix: addr.HostPrefix(netip.IPv6Loopback())}, host(2)}))
		}, nil},
	} {
		var err error
		var elements []Element
		netlab.NewHost(t, "node").Do(func() {
			err = test.do()
			if test.name == "another family" {
				elements, _ = Elements("small")
			}
		})
		if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), "ipset ") {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		if test.name == "another family" && len(elements) != 2 {
			t.Errorf("one bad element kept out others: there are %d of 2", len(elements))
		}
	}
}

// TestAll lists everybody's sets, and Swap exchanges two of them.
func TestAll(t *testing.T) {
	clients := Spec{Name: "clients", Type: HashIP, Family: addr.IPv6, MaxElements: 1 << 20, Timeout: 10800, ForceAdd: true}
	var all, swapped []Header
	var err error
	netlab.NewHost(t, "node").Do(func() {
		second := clients
		second.Name = "second"
		err = errors.Join(Create(clients, 0), Create(second, 0), Add("second", []Element{{Prefix: addr.HostPrefix(netip.IPv6Loopback())}}))
		all, _ = All()
		err = errors.Join(err, Swap("second", "clients"))
		swapped, _ = All()
	})
	if err != nil {
		t.Fatal(err)
	}
	count := func(headers []Header, name string) int {
		for _, h := range headers {
			if h.Name == name {
				return h.Elements
			}
		}
		return -1
	}
	if i := slices.IndexFunc(all, func(h Header) bool { return h.Spec == clients }); len(all) != 2 || i < 0 {
		t.Errorf("the sets are %+v, want %+v and another", all, clients)
	}
	if count(all, "second") != 1 || count(swapped, "second") != 0 || count(swapped, "clients") != 1 {
		t.Errorf("before the swap %+v, after it %+v", all, swapped)
	}
}

// FuzzParse holds that no answer of the kernel, however odd, ends the process.
func FuzzParse(f *testing.F) {
	f.Add([]byte(named("x").Nested(7, Element{Port: 1}.attributes())))
	f.Fuzz(func(_ *testing.T, data []byte) {
		parseHeader(data)
		_ = parseElement(data).String()
	})
}

// BenchmarkAdd fills a set with the endpoints of ten thousand Services.
func BenchmarkAdd(b *testing.B) {
	var all []Element
	for i := range 50000 {
		a := netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})
		all = append(all, Element{addr.HostPrefix(a), a, 6, 80})
	}
	spec := Spec{Name: "endpoints", Type: HashIPPortIP, Family: addr.IPv4, MaxElements: 1 << 20}
	for b.Loop() {
		netlab.NewHost(b, "node").Do(func() {
			if err := errors.Join(Create(spec, len(all)), Add("endpoints", all)); err != nil {
				b.Error(err)
			}
		})
	}
}
