package kernelwatch_test

import (
	"os/exec"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/kernelwatch"
)

// TestWatch holds that the transactions of others begin an epoch, and our own do not.
func TestWatch(t *testing.T) {
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		write := func(table string) {
			if out, err := exec.Command("nft", "add", "table", "ip", table).CombinedOutput(); err != nil {
				t.Errorf("add table %s: %v: %s", table, err, out)
			}
		}
		var w kernelwatch.Watch
		first := w.Look()
		if again := w.Look(); again != first {
			t.Errorf("nobody wrote, and epoch %d became %d", first, again)
		}
		write("ours")
		w.Wrote()
		if again := w.Look(); again != first {
			t.Errorf("we alone wrote, and epoch %d became %d", first, again)
		}
		write("theirs")
		second := w.Look()
		if second == first {
			t.Error("others wrote, and the epoch stayed")
		}
		write("theirs-too")
		write("ours-too")
		w.Wrote()
		if again := w.Look(); again == second {
			t.Error("others wrote before us, and the epoch stayed")
		}
	})
}
