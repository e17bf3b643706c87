package kernelwatch_test

import (
	"fmt"
	"os/exec"
	"strings"
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

// TestATableBeside holds that the transactions of another process of ours, which its table counts, begin no epoch; with one
// of a stranger among them they do, and so does a table that is taken away or begins to count anew.
func TestATableBeside(t *testing.T) {
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		run := func(script string) {
			t.Helper()
			command := exec.Command("nft", "-f", "-")
			command.Stdin = strings.NewReader(script)
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", script, err, out)
			}
		}
		create := func(family string, writings int) {
			run(fmt.Sprintf("add table %s beside; add set %s beside transactions { type mark; size 2; }; add element %s beside transactions { %d }", family, family, family, writings))
		}
		count := func(family string, to int) {
			run(fmt.Sprintf("delete element %s beside transactions { %d }; add element %s beside transactions { %d }", family, to-1, family, to))
		}
		g := kernelwatch.Generation{Beside: "beside"}
		epoch, _ := g.Read(func() error { return nil })
		is := func(what string, changed bool) {
			t.Helper()
			if g.Changed(epoch) != changed {
				t.Errorf("%s: changed is %t", what, !changed)
			}
			epoch, _ = g.Read(func() error { return nil })
		}
		create("ip", 1)
		is("the table comes", false)
		count("ip", 2)
		count("ip", 3)
		is("it is written", false)
		create("ip6", 1)
		count("ip", 4)
		is("both families are", false)
		_ = g.Write(func() (int, error) { run("add table ip ours"); count("ip", 5); return 1, nil })
		is("we write as well", false)
		_ = g.Write(func() (int, error) {
			run("add table ip ours-too")
			run("add table ip theirs")
			count("ip", 6)
			return 1, nil
		})
		is("a stranger writes as well", true)
		count("ip", 7)
		run("add chain ip theirs one")
		is("a stranger writes", true)
		count("ip6", 2)
		is("it is written again", false)
		run("delete table ip beside")
		is("it goes", true)
		create("ip", 8)
		is("it is back", true)
		count("ip", 9)
		is("it is written once more", false)
	})
}
