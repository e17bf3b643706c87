package nftables

import (
	"strings"
	"testing"

	"github.com/google/nftables/expr"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestProbe holds that a kernel which lacks something is told from one that does not,
// by name, and that nothing stays of the question.
func TestProbe(t *testing.T) {
	node := netlab.NewHost(t, "node")
	for _, f := range addr.Families() {
		l := newLayout(f)
		k := newLink(nil)
		node.Do(func() {
			if err := probe(k, l, l.specimens()); err != nil {
				t.Errorf("this kernel: %v", err)
			}
			odd := rule{Says: "balance the load by magic", Exprs: []expr.Any{&expr.Numgen{Register: reg(0), Type: 1}}} // modulo 0
			err := probe(k, l, append(l.static(), chain{Name: "odd", Rules: []rule{odd}}))
			if err == nil || !strings.Contains(err.Error(), odd.Says) || !strings.Contains(err.Error(), "NUMGEN") || !strings.Contains(err.Error(), f.String()) {
				t.Errorf("error %v, want one that names %s, the rule and what it is made of", err, f)
			}
			k.Close()
		})
	}
	if got := blackbox.RunOn(t, node, "nft", "list", "tables"); got != "" {
		t.Errorf("probing left %s", got)
	}
}

// TestWhatTheKernelLacksIsToldByApply begins without the right to change anything: nothing
// ends, the error says what to do, and all is well without a restart once the right is there.
func TestWhatTheKernelLacksIsToldByApply(t *testing.T) {
	want := blackbox.Forwarding(blackbox.Services()...)
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		var b *Backend
		blackbox.Powerless(t, func() {
			b = New(Config{Log: blackbox.Quiet()})
			missing, err := b.Apply(t.Context(), want)
			if failed := outcome.AllOf[*outcome.FamilyError](err); len(failed) != 2 || len(missing) != len(want.Ports) || !strings.Contains(err.Error(), "NET_ADMIN") {
				t.Errorf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
			}
		})
		if missing, err := b.Apply(t.Context(), want); err != nil || len(missing) > 0 {
			t.Errorf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
		}
	})
}

// TestWhatCannotBeRemovedIsMissing takes the right away and then a Service, or what no port is
// about: it is said until it is done, whether the kernel had been read before or not.
func TestWhatCannotBeRemovedIsMissing(t *testing.T) {
	want := blackbox.Forwarding(blackbox.Services()...)
	fewer := blackbox.Forwarding(blackbox.Services()[:5]...)
	noPods := fewer
	noPods.Pods = nil
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		b := New(Config{Log: blackbox.Quiet()})
		apply := func(want desired.Forwarding) (outcome.Missing, error) { return b.Apply(t.Context(), want) }
		expectAll := func(want desired.Forwarding) {
			if missing, err := apply(want); err != nil || len(missing) > 0 {
				t.Errorf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
			}
		}
		expectAll(want)
		blackbox.Powerless(t, func() {
			b.link.Close() // a socket keeps the rights that it was made with
			for range 2 {
				missing, err := apply(fewer)
				if err == nil || len(missing) != len(want.Ports)-len(fewer.Ports) || len(outcome.Behind(missing, err)) != 2 {
					t.Errorf("%d ports are missing, error %v: want the %d that are still there", len(missing), err, len(want.Ports)-len(fewer.Ports))
				}
				for key, in := range missing {
					if _, wanted := fewer.Ports[key]; wanted || !in.Equal(want.Ports[key]) {
						t.Errorf("%v is missing, with %+v in the kernel", key, in)
					}
				}
			}
		})
		b.link.Close()
		expectAll(fewer)
		blackbox.Powerless(t, func() {
			b.link.Close()
			missing, err := apply(noPods)
			if len(missing) != 0 || len(outcome.Behind(missing, err)) != 2 {
				t.Errorf("%d ports are missing, error %v: want that both families are behind", len(missing), err)
			}
		})
		b.link.Close()
		expectAll(noPods)
	})
}
