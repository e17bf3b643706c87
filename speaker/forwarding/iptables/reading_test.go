package iptables

import (
	"maps"
	"strings"
	"testing"
)

// FuzzParseSave: whatever a program prints, rules of others are never taken for ours, and
// what is read of ours does not depend on them.
func FuzzParseSave(f *testing.F) {
	f.Add("*nat\n:PREROUTING ACCEPT [0:0]\n:FAIRLEAD-DISPATCH - [0:0]\n-A PREROUTING -j FAIRLEAD-DISPATCH\n-A FAIRLEAD-DISPATCH -j FAIRLEAD-SERVICES\nCOMMIT\n")
	f.Add("-A KUBE-X -m comment --comment \"-j FAIRLEAD-X\" -j DROP\n-A FAIRLEAD-X -m comment --comment \"abc\"\n-A FAIRLEAD-X -s 10.0.0.1/32 -d 10.0.0.2/32\n")
	f.Add(":\n-A \n-A FAIRLEAD-\n:FAIRLEAD-\n-A x -m comment --comment \"\\\" -j FAIRLEAD-\"")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseSave(strings.NewReader(text))
		if err != nil {
			return // a line of a megabyte
		}
		rules := 0
		for chain, c := range got.chains {
			if !strings.HasPrefix(chain, ours) || c.rules < 0 {
				t.Errorf("%q with %d rules is taken for a chain of ours", chain, c.rules)
			}
			rules += c.rules
		}
		for _, j := range got.jumps {
			if strings.HasPrefix(j.from, ours) || !strings.Contains(j.rule, ours) {
				t.Errorf("%+v is taken for a jump to a chain of ours", j)
			}
			rules++
		}
		if lines := strings.Count(text, "\n") + 1; rules > lines {
			t.Errorf("%d rules are read in %d lines", rules, lines)
		}
		again, err := parseSave(strings.NewReader("-A KUBE-X -j KUBE-Y\n:KUBE-X - [0:0]\n" + text))
		if err != nil || !maps.Equal(again.chains, got.chains) || len(again.jumps) != len(got.jumps) {
			t.Errorf("beside a rule of others %+v is read as %+v (%v)", got, again, err)
		}
	})
}
