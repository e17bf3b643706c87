package iptables

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestProgramStaysForTheNextScript has one program write change after change, and another
// take its place when somebody has killed it. Not in parallel, as PATH belongs to the process.
func TestProgramStaysForTheNextScript(t *testing.T) {
	bin := t.TempDir()
	for _, f := range addr.Families() {
		name := commands{NFT, f}.program("restore")
		program, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		script := fmt.Sprintf("#!/bin/sh\necho $$ >>%s/%s.pids\nexec %s \"$@\"\n", bin, name, program)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	c := &faulty{cluster: newCluster(t, NFT)}
	started := func(f addr.Family) []string {
		pids, err := os.ReadFile(filepath.Join(bin, commands{NFT, f}.program("restore")+".pids"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(pids))
	}
	served := func(when string) {
		t.Helper()
		for _, f := range addr.Families() {
			if !c.serves(f) {
				t.Errorf("%s is not served %s", f, when)
			}
		}
	}
	services := blackbox.Services()
	change := func(n int) { c.Apply(blackbox.Forwarding(services[:len(services)-n%2]...)) }
	stay := func() bool {
		return !slices.ContainsFunc(c.backend.families, func(f *family) bool { return !f.runners[0].streams || f.runners[0].resident == nil })
	}
	for until, n := time.Now().Add(patience), 0; !stay(); n++ { // on a busy machine the first may end too soon
		if change(n); time.Now().After(until) {
			t.Fatal("no program stays")
		}
	}
	before := map[addr.Family]int{}
	for _, f := range addr.Families() {
		before[f] = len(started(f))
	}
	for n := range 5 {
		change(n)
		served("after a change")
	}
	for _, family := range c.backend.families {
		f, stayed := family.family, family.runners[0].resident
		all := started(f)
		if len(all) > before[f] {
			t.Errorf("%d programs were started for %s by 5 changes", len(all)-before[f], f)
		}
		before[f] = len(all)
		for _, text := range all {
			pid, err := strconv.Atoi(text)
			if err == nil {
				err = syscall.Kill(pid, syscall.SIGKILL)
			}
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		<-stayed.done
	}
	change(1)
	change(0)
	served("after the program was killed")
	for _, f := range addr.Families() {
		if got := len(started(f)); got != before[f]+1 {
			t.Errorf("%d programs were started for %s in place of one that was killed", got-before[f], f)
		}
	}
	// What others do in between, the program that stays must see.
	c.Run("nft", "flush", "ruleset")
	c.Apply(blackbox.Forwarding(services...))
	served("after somebody flushed everything")
}
