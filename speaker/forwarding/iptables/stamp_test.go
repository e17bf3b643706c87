package iptables

import (
	"fmt"
	"math"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
)

// TestStampIsReadAsWritten writes digests by iptables and reads them in both ways that there are.
func TestStampIsReadAsWritten(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		for _, f := range addr.Families() {
			program := commands{c.variant, f}
			for _, sum := range []uint64{1, 1 << 32, 0xc599_67e4_ba64_f8f3, math.MaxUint64} {
				c.Run("sh", "-c", fmt.Sprintf("cat <<'END' | %s --noflush\n*filter\n:%s - [0:0]\n-A %[2]s %s\nCOMMIT\nEND",
					program.program("restore"), chainStamp, stampRule(f, sum)))
				c.Node.Do(func() {
					s, err := program.saveTable(t.Context(), &runner{patience: defaultPatience}, "filter", 1)
					if err != nil || s.stamp != sum {
						t.Errorf("%s: %#x is read as %#x by %s (%v)", f, sum, s.stamp, program.program("save"), err)
					}
					if c.variant == Legacy {
						return
					}
					if s, err = glance(f, "filter", nil); err != nil || s.stamp != sum {
						t.Errorf("%s: %#x is read as %#x from nf_tables (%v)", f, sum, s.stamp, err)
					}
				})
			}
		}
	})
}

// TestOtherRulesAreNoStamp has a chain of that name say other things, as one of an earlier release did.
func TestOtherRulesAreNoStamp(t *testing.T) {
	for _, rule := range []string{
		"", `-m comment --comment "c59967e4ba64f8f3"`, "-s 10.0.0.1/32", "-s 10.0.0.1/32 -j DROP", "-d 10.0.0.1/32 -s 10.0.0.2/32",
		"-s 10.0.0.0/24 -d 10.0.0.1/32", "-s 10.0.0.1/32 -d here", "! -s 10.0.0.1/32 -d 10.0.0.2/32",
	} {
		if sum := parseStamp(rule); sum != 0 {
			t.Errorf("%q is taken for the stamp %#x", rule, sum)
		}
	}
}
