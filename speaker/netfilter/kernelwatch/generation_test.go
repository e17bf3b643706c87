package kernelwatch_test

import (
	"os/exec"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// TestGeneration holds that the transactions of others begin an epoch, and our own do not.
func TestGeneration(t *testing.T) {
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		write := func(table string) {
			if out, err := exec.Command("nft", "add", "table", "ip", table).CombinedOutput(); err != nil {
				t.Errorf("add table %s: %v: %s", table, err, out)
			}
		}
		var g kernelwatch.Generation
		if !g.Changed(0) {
			t.Error("nothing was read, and it is as it was read")
		}
		read := func(read func()) kernelwatch.Epoch {
			epoch, _ := g.Read(func() error { read(); return nil })
			return epoch
		}
		first := read(func() {})
		if g.Changed(first) {
			t.Error("changed though nothing was written")
		}
		_ = g.Write(func() (int, error) { write("ours"); return 1, nil })
		if g.Changed(first) {
			t.Error("changed though we alone wrote")
		}
		write("theirs")
		if !g.Changed(first) {
			t.Error("others wrote, and nothing is changed")
		}
		second := read(func() {})
		_ = g.Write(func() (int, error) { write("theirs-too"); write("ours-too"); return 1, nil })
		if !g.Changed(second) {
			t.Error("others wrote before us, and nothing is changed")
		}
		if third := read(func() { write("while-it-is-read") }); !g.Changed(third) {
			t.Error("others wrote while it was read, and nothing is changed")
		}
	})
}
