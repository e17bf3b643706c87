package lab

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func testProcesses(t *testing.T) processes {
	t.Helper()
	return processes{records: t.TempDir(), logs: t.TempDir()}
}

func TestStopEndsAProcessAndItsGroup(t *testing.T) {
	procs := testProcesses(t)
	// As nsenter: a parent that does not pass its signals on.
	parent, err := procs.start(t.Context(), daemon{name: "node1-sleep", command: []string{"sh", "-c", "sleep 60 & echo $!; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	child := process{name: "child"}
	err = until(t.Context(), "the child", func() error {
		text, err := os.ReadFile(procs.log("node1-sleep"))
		if err != nil {
			return err
		}
		if child.pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return err
		}
		child.began, _, err = processStat(child.pid)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if names, err := procs.names("node1-"); err != nil || !slices.Equal(names, []string{"node1-sleep"}) {
		t.Errorf("names = %q, %v", names, err)
	}
	if err := procs.stop(t.Context(), syscall.SIGTERM, "node1-sleep", "node1-never-started"); err != nil {
		t.Fatal(err)
	}
	if parent.running() {
		t.Error("the process runs on")
	}
	if err := child.waitGone(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := procs.find("node1-sleep"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record is there still: %v", err)
	}
}

// A record whose process has ended must never reach another with its number.
func TestStopLeavesAnotherProcessWithTheSameNumber(t *testing.T) {
	procs := testProcesses(t)
	bystander, err := procs.start(t.Context(), daemon{name: "bystander", command: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := procs.stop(context.WithoutCancel(t.Context()), syscall.SIGKILL, "bystander"); err != nil {
			t.Error(err)
		}
	})
	stale := process{name: "stale", pid: bystander.pid, began: "1"}
	if err := os.WriteFile(filepath.Join(procs.records, stale.name), stale.record(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := procs.stop(t.Context(), syscall.SIGKILL, stale.name); err != nil {
		t.Fatal(err)
	}
	if !bystander.running() {
		t.Error("stop killed a process that is not of the record")
	}
}

func TestStopKillsWhatIgnoresASignal(t *testing.T) {
	procs := testProcesses(t)
	stubborn, err := procs.start(t.Context(), daemon{name: "stubborn", command: []string{"sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"}})
	if err != nil {
		t.Fatal(err)
	}
	err = until(t.Context(), "the trap", func() error {
		text, err := os.ReadFile(procs.log("stubborn"))
		if err == nil && len(text) == 0 {
			err = errors.New("it said nothing yet")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := stubborn.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := stubborn.waitOrKill(t.Context(), 50*time.Millisecond); err != nil || stubborn.running() {
		t.Errorf("waitOrKill = %v, running %t", err, stubborn.running())
	}
}

func TestUntilReadyGivesUpOnceTheProcessEnds(t *testing.T) {
	procs := testProcesses(t)
	proc, err := procs.start(t.Context(), daemon{name: "short", command: []string{"sh", "-c", "echo no such bridge; sleep 0.1; exit 1"}})
	if err != nil {
		t.Fatal(err)
	}
	err = procs.untilReady(t.Context(), proc, func() error { return errors.New("not ready") })
	if err == nil || !strings.Contains(err.Error(), "it ended") || !strings.Contains(err.Error(), "no such bridge") {
		t.Errorf("untilReady = %v; want that it ended and what it said", err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("1234 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20")
	f.Add("1 (x) R")
	f.Add("")
	f.Add(")")
	f.Fuzz(func(t *testing.T, text string) {
		began, state, err := parseStat(text)
		if err == nil && (began == "" || state == "") {
			t.Errorf("parseStat(%q) = %q, %q", text, began, state)
		}
	})
}

func TestParseStat(t *testing.T) {
	began, state, err := parseStat("1234 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20")
	if began != "4711" || state != "S" || err != nil {
		t.Errorf("parseStat = %q, %q, %v", began, state, err)
	}
}

func TestUntilTellsWhatItWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	last := errors.New("not yet")
	err := until(ctx, "the router", func() error { return last })
	if !errors.Is(err, last) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the router") {
		t.Errorf("until = %v", err)
	}
}
