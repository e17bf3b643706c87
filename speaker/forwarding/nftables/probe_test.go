package nftables

import (
	"strings"
	"testing"

	"github.com/google/nftables/expr"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestProbe holds that a kernel which lacks something is told from one that does not,
// by name, and that nothing stays of the question.
func TestProbe(t *testing.T) {
	node := netlab.NewHost(t, "node")
	for _, f := range addr.Families() {
		l := newLayout(f, 1<<defaultMasqueradeBit)
		k := newLink()
		node.Do(func() {
			if err := probe(k, l, l.specimens()); err != nil {
				t.Errorf("this kernel: %v", err)
			}
			odd := rule{"balance the load by magic", []expr.Any{&expr.Numgen{Register: reg(0), Type: 1}}} // modulo 0
			err := probe(k, l, append(l.static(), chain{name: "odd", rules: []rule{odd}}))
			if err == nil || !strings.Contains(err.Error(), odd.says) || !strings.Contains(err.Error(), "NUMGEN") || !strings.Contains(err.Error(), f.String()) {
				t.Errorf("error %v, want one that names %s, the rule and what it is made of", err, f)
			}
			k.close()
		})
	}
	if got := blackbox.RunOn(t, node, "nft", "list", "tables"); got != "" {
		t.Errorf("probing left %s", got)
	}
}

// TestNewNamesWhatIsWrong holds that bad settings err.
func TestNewNamesWhatIsWrong(t *testing.T) {
	if _, err := New(Config{Log: blackbox.Quiet(), MasqueradeBit: 32}); err == nil || !strings.Contains(err.Error(), "32") {
		t.Errorf("masquerade bit 32: error %v, want one that names it", err)
	}
}
