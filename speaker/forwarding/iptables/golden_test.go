package iptables

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden shows the rules of each Service of the packet test for review: what
// they do is proven there.
func TestGolden(t *testing.T) {
	for _, f := range addr.Families() {
		for _, s := range blackbox.Services() {
			golden(t, fmt.Sprintf("%s-%s", strings.ToLower(f.String()), s.Name), f, blackbox.Forwarding(s))
		}
		golden(t, strings.ToLower(f.String())+"-sticky", f, blackbox.Forwarding(blackbox.Service{Name: "sticky", N: 11, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Local = blackbox.At(blackbox.ServePort, a.P1, a.P3), blackbox.At(blackbox.ServePort, a.P1)
			p.ExternalLocal, p.Affinity = true, 10*time.Minute
		}}))
		many := blackbox.Forwarding()
		for n := range byte(12) {
			maps.Copy(many.Ports, blackbox.Forwarding(blackbox.Service{Name: fmt.Sprintf("s%02d", n), N: n, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster = blackbox.At(blackbox.ServePort, a.P1)
			}}).Ports)
		}
		golden(t, strings.ToLower(f.String())+"-many", f, many)
		unknown := blackbox.Forwarding(blackbox.Services()[0])
		unknown.Pods = nil
		golden(t, strings.ToLower(f.String())+"-pods-unknown", f, unknown)
		localhost := blackbox.Forwarding()
		localhost.NodePorts = append(localhost.NodePorts, netip.MustParsePrefix("198.51.100.0/24"))
		localhost.Loopback, localhost.Guard = []netip.Prefix{addr.Loopback()}, true
		golden(t, strings.ToLower(f.String())+"-localhost", f, localhost)
		// Of legacy iptables: endpoints in the tree, where nothing but a ClusterIP leads to them.
		few := blackbox.Forwarding()
		for n := range byte(2) {
			maps.Copy(few.Ports, blackbox.Forwarding(blackbox.Service{Name: fmt.Sprintf("s%02d", n), N: n, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster = blackbox.At(blackbox.ServePort, a.P1, a.P3)
				if n == 0 {
					p.VIPs, p.ExternalIPs, p.NodePort = nil, nil, 0
				}
			}}).Ports)
		}
		goldenOf(t, strings.ToLower(f.String())+"-legacy-layout", style{family: f, mark: desired.MasqueradeMark, legacyLayout: true}, few)
	}
}

func golden(t *testing.T, name string, f addr.Family, want desired.Forwarding) {
	t.Helper()
	goldenOf(t, name, style{family: f, mark: desired.MasqueradeMark}, want)
}

func goldenOf(t *testing.T, name string, s style, want desired.Forwarding) {
	t.Helper()
	f := s.family
	fam := newFamily(s, commands{NFT, f}, nil, blackbox.Quiet())
	fam.base(want)
	fam.stage(want.Changes(nil, 0, desired.OfFamily(f)))
	var b strings.Builder
	for _, table := range fam.tables() {
		fmt.Fprintf(&b, "-- %s --\n", table.name)
		for _, chain := range slices.Sorted(maps.Keys(table.want)) {
			for rule := range strings.Lines(table.want[chain].text()) {
				fmt.Fprintf(&b, "-A %s %s", chain, rule)
			}
		}
	}
	for _, of := range slices.Sorted(maps.Keys(fam.sets.fixed)) {
		fmt.Fprintf(&b, "-- %s --\n", fam.sets.fixed[of].Name)
		var elements []string
		for e := range fam.sets.fixed[of].members {
			elements = append(elements, e.element().String()+"\n")
		}
		slices.Sort(elements)
		b.WriteString(strings.Join(elements, ""))
	}

	file := filepath.Join("testdata", name+".txtar")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(old) != b.String() {
		t.Errorf("%s is not what is rendered (run with -update and review the difference):\n%s", file, b.String())
	}
}
