package process

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseUse(t *testing.T) {
	t.Parallel()
	status := "Name:\tspeaker\nVmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\n"
	stat := "7 (a ) b) S 1 7 7 0 -1 4194304 1 2 3 4 50 60 70 80 20 0 9 0 123"
	got, err := ParseUse(status + stat)
	if want := (Use{CPU: 2600 * time.Millisecond, Resident: 2, Anonymous: 1, Peak: 4}); err != nil || got != want {
		t.Errorf("ParseUse gives %+v, %v, want %+v", got, err, want)
	}
	if _, err := ParseUse("7 (x) S 1"); err == nil {
		t.Error("texts that are too short are no error")
	}
}

// TestAbandon: what a process has started ends with it.
func TestAbandon(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Running) error{"Stop": (*Running).Stop, "Abandon": (*Running).Abandon} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The child does not hold the log, as an iptables-restore does not.
			shell := exec.CommandContext(t.Context(), "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!; wait")
			r, err := Start(t, "shell", shell, func(start func()) { start() })
			if err != nil {
				t.Fatal(err)
			}
			for r.Tail() == "" {
				if err := r.Ended(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			child, err := strconv.Atoi(strings.TrimSpace(r.Tail()))
			if err != nil {
				t.Fatal(err)
			}
			if err := end(r); err != nil {
				t.Error(err)
			}
			if err := end(r); err != nil {
				t.Errorf("once more: %v", err)
			}
			if err := unix.Kill(child, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("the child is still there: %v", err)
			}
		})
	}
}
