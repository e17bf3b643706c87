package nftables

import (
	"strings"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
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

// TestWhatTheKernelLacksIsToldByApply begins without the right to change anything: nothing
// ends, the error says what to do, and all is well without a restart once the right is there.
func TestWhatTheKernelLacksIsToldByApply(t *testing.T) {
	want := blackbox.Forwarding(blackbox.Services()...)
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		var b *Backend
		powerless(t, func() {
			var err error
			if b, err = New(Config{Log: blackbox.Quiet()}); err != nil {
				t.Fatal(err)
			}
			missing, err := b.Apply(t.Context(), want)
			if failed := desired.AllOf[*desired.FamilyError](err); len(failed) != 2 || len(missing) != len(want.Ports) || !strings.Contains(err.Error(), "NET_ADMIN") {
				t.Errorf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
			}
		})
		if missing, err := b.Apply(t.Context(), want); err != nil || len(missing) > 0 {
			t.Errorf("%d of %d ports are missing, error %v", len(missing), len(want.Ports), err)
		}
	})
}

// powerless does something without the right to change the network.
func powerless(t *testing.T, do func()) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
	less := has
	less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &less[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&header, &has[0]); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

// TestNewNamesWhatIsWrong holds that bad settings err.
func TestNewNamesWhatIsWrong(t *testing.T) {
	if _, err := New(Config{Log: blackbox.Quiet(), MasqueradeBit: 32}); err == nil || !strings.Contains(err.Error(), "32") {
		t.Errorf("masquerade bit 32: error %v, want one that names it", err)
	}
}
