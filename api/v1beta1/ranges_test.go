package v1beta1_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
)

// TestAddressRanges admits single entries of spec.addresses and reads them in Go.
func TestAddressRanges(t *testing.T) {
	t.Parallel()
	const (
		malformed   = "must be a CIDR such as"
		notNetwork  = "a CIDR must begin at its network address"
		families    = "both ends of a range must be of one family"
		reversed    = "the range is reversed"
		unreachable = "must hold unicast addresses that other machines can reach"
	)
	a := admissionOf(t, "IPAddressPool")
	for text, want := range map[string]string{
		"192.0.2.0/24":                                   "",
		"192.0.2.7/32":                                   "",
		"10.0.0.0/8":                                     "",
		" 192.0.2.0/24 ":                                 "",
		"192.0.2.10-192.0.2.20":                          "",
		"192.0.2.10 - 192.0.2.20":                        "",
		"192.0.2.10-192.0.2.10":                          "",
		"192.0.2.255-192.0.3.0":                          "",
		"9.255.255.255-10.0.0.0":                         "",
		"169.254.7.1-169.254.7.9":                        "",
		"2001:db8::/64":                                  "",
		"2001:DB8::/64":                                  "",
		"fd00::/8":                                       "",
		"2001:db8::1/128":                                "",
		"2001:db8::1-2001:db8::ff":                       "",
		"2001:db8::9-2001:db8::10":                       "",
		"2001:db8::ffff-2001:DB8::A:0000":                "",
		"2001:db8:1:2:3:4:5:6-2001:db8:1:2:3:4:5::":      reversed,
		"2001:db8:1:2:3:4:5::-2001:db8:1:2:3:4:5:1":      "",
		"1::2:3:4:5:6:7-1:0:2:3:4:5:6:8":                 "",
		"2001:db8::-2001:db8:0:ffff:ffff:ffff:ffff:ffff": "",
		"2001:db8:0:0:0:0:0:1-2001:db8::1":               "",

		"":                                      malformed,
		"-":                                     malformed,
		"/":                                     malformed,
		"everything":                            malformed,
		"192.0.2.10":                            malformed,
		"192.0.2.0/33":                          malformed,
		"192.0.2.0/024":                         malformed,
		"192.0.2.0/-1":                          malformed,
		"192.0.2/24":                            malformed,
		"192.0.2.256/32":                        malformed,
		"192.0.02.0/24":                         malformed,
		"192.0.2.10-20":                         malformed,
		"192.0.2.10-":                           malformed,
		"-192.0.2.10":                           malformed,
		"192.0.2.10-192.0.2.20-192.0.2.30":      malformed,
		"192.0.2.0/28-192.0.2.16/28":            malformed,
		"192.0.2.10–192.0.2.20":                 malformed, // an en dash
		"192.0.2.10, 192.0.2.20":                malformed,
		"2001:db8::/129":                        malformed,
		"2001:db8::1::2/64":                     malformed,
		"fe80::1%eth0-fe80::2%eth0":             malformed,
		"fe80::%eth0/64":                        malformed,
		"::ffff:192.0.2.0/120":                  malformed,
		"::ffff:192.0.2.1-192.0.2.9":            malformed,
		"192.0.2.7/24":                          notNetwork,
		"2001:db8::1/64":                        notNetwork,
		"192.0.2.10-2001:db8::1":                families,
		"64:ff9b::192.0.2.1-64:ff9b::192.0.2.9": families,
		"192.0.2.20-192.0.2.10":                 reversed,
		"192.0.3.0-192.0.2.255":                 reversed,
		"10.0.0.0-9.255.255.255":                reversed,
		"2001:db8::ff-2001:db8::1":              reversed,
		"2001:db8::10-2001:db8::9":              reversed,
		"2001:db8:1::-2001:db8::ffff":           reversed,
		"0.0.0.0/0":                             unreachable,
		"127.0.0.0/8":                           unreachable,
		"224.0.0.0/24":                          unreachable,
		"240.0.0.1-255.255.255.255":             unreachable,
		"::/0":                                  unreachable,
		"::1-::9":                               unreachable,
		"fe80::/64":                             unreachable,
		"ff02::/16":                             unreachable,
	} {
		t.Run(text, func(t *testing.T) {
			errs, _ := a.Admit(t, poolOf(text))
			_, parseErr := addr.ParseRange(text)
			switch {
			case want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case want == "" && parseErr != nil:
				t.Errorf("ParseRange refuses what the schema admits: %v", parseErr)
			case want != "" && len(errs) != 1:
				t.Errorf("want the one error %q, got %v", want, errs.ToAggregate())
			case want != "" && !strings.Contains(errs[0].Error(), want):
				t.Errorf("want %q, got %v", want, errs[0])
			}
		})
	}
}

// TestSchemaAgreesWithParseRange draws entries, good, bad and oddly written, and
// holds the schema against addr.ParseRange: they must agree, but for what the
// schema alone refuses.
func TestSchemaAgreesWithParseRange(t *testing.T) {
	t.Parallel()
	a := admissionOf(t, "IPAddressPool")
	rapid.Check(t, func(r *rapid.T) {
		text := drawEntry(r)
		errs, _ := a.Admit(t, poolOf(text))
		_, parseErr := addr.ParseRange(text)
		admitted, parsed := len(errs) == 0, parseErr == nil
		switch {
		case admitted && !parsed:
			r.Fatalf("the schema admits %q; ParseRange: %v", text, parseErr)
		case parsed && !admitted && !refusedBySchemaAlone(text):
			r.Fatalf("ParseRange reads %q; the schema: %v", text, errs.ToAggregate())
		case admitted && refusedBySchemaAlone(text):
			r.Fatalf("the schema admits %q, of which it should refuse the form or the ends", text)
		}
	})
}

// TestLargestPool admits as many entries as there may be, in the longest writing:
// the rules must stay within what the API server spends on one object.
func TestLargestPool(t *testing.T) {
	t.Parallel()
	var entries []any
	for i := range 64 {
		entries = append(entries, fmt.Sprintf("2001:0db8:0000:0000:0000:0000:%04x:0000 %s - %s 2001:0db8:0000:0000:0000:0000:%04x:ffff",
			i, strings.Repeat(" ", 6), strings.Repeat(" ", 6), i))
	}
	pool := poolOf("")
	pool["spec"].(map[string]any)["addresses"] = entries
	if errs, _ := admissionOf(t, "IPAddressPool").Admit(t, pool); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

// refusedBySchemaAlone tells of an entry that ParseRange reads whether the schema
// has a reason of its own to refuse it.
func refusedBySchemaAlone(text string) bool {
	if strings.Contains(text, "-") && strings.Contains(text, ".") && strings.Contains(text, ":") {
		return true
	}
	r, err := addr.ParseRange(text)
	if err != nil {
		return false
	}
	reachable := func(a netip.Addr) bool {
		return a.IsGlobalUnicast() || a.Is4() && a.IsLinkLocalUnicast()
	}
	// The last address of a CIDR may be what it likes: 0.0.0.0/0 and the like
	// begin badly already.
	return !reachable(r.From()) || strings.Contains(text, "-") && !reachable(r.To())
}

// drawEntry draws the text of an entry.
func drawEntry(r *rapid.T) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\t"})
	switch rapid.IntRange(0, 9).Draw(r, "form") {
	case 0: // text of the right letters
		return rapid.StringMatching(`[0-9a-f:./ -]{0,40}`).Draw(r, "text")
	case 1, 2, 3: // a CIDR, mostly without host bits
		a := drawAddr(r)
		bits := rapid.IntRange(0, a.BitLen()).Draw(r, "bits")
		if p, err := a.Prefix(bits); err == nil && rapid.IntRange(0, 3).Draw(r, "masked") > 0 {
			a = p.Addr()
		}
		return fmt.Sprintf("%s%s/%d", space.Draw(r, "before"), write(r, a), bits)
	default: // a range, often of near ends
		from, to := drawAddr(r), drawAddr(r)
		if rapid.Bool().Draw(r, "near") {
			to = near(r, from)
		}
		return write(r, from) + space.Draw(r, "before") + "-" + space.Draw(r, "after") + write(r, to)
	}
}

func drawAddr(r *rapid.T) netip.Addr {
	if rapid.Bool().Draw(r, "ipv4") {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(r, "bytes")))
	}
	b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "bytes"))
	// Zeros make "::", and the front of a real address makes most reachable.
	for i := range b {
		if rapid.IntRange(0, 2).Draw(r, "zero") > 0 {
			b[i] = 0
		}
	}
	if rapid.IntRange(0, 3).Draw(r, "global") > 0 {
		b[0], b[1] = 0x20, 0x01
	}
	return netip.AddrFrom16(b)
}

// near changes one byte of an address.
func near(r *rapid.T, a netip.Addr) netip.Addr {
	b := a.AsSlice()
	b[rapid.IntRange(0, len(b)-1).Draw(r, "at")] = rapid.Byte().Draw(r, "byte")
	changed, _ := netip.AddrFromSlice(b)
	return changed
}

// write writes an address in one of the forms that people use.
func write(r *rapid.T, a netip.Addr) string {
	switch rapid.IntRange(0, 4).Draw(r, "writing") {
	case 0:
		return a.StringExpanded()
	case 1:
		return strings.ToUpper(a.String())
	case 2: // 64:ff9b::192.0.2.1
		if a.Is6() {
			b := a.As16()
			return fmt.Sprintf("%x:%x:%x:%x:%x:%x:%s", uint16(b[0])<<8|uint16(b[1]), uint16(b[2])<<8|uint16(b[3]),
				uint16(b[4])<<8|uint16(b[5]), uint16(b[6])<<8|uint16(b[7]), uint16(b[8])<<8|uint16(b[9]),
				uint16(b[10])<<8|uint16(b[11]), netip.AddrFrom4([4]byte(b[12:])))
		}
	}
	return a.String()
}

// poolOf is a pool of one entry.
func poolOf(entry string) map[string]any {
	return map[string]any{
		"apiVersion": "fairlead.dev/v1beta1",
		"kind":       "IPAddressPool",
		"metadata":   map[string]any{"name": "x"},
		"spec":       map[string]any{"addresses": []any{entry}},
	}
}
