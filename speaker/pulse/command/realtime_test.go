package command

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAPolicyThatWasRefusedIsAskedForAgain: the kernel may grant later what it does not grant at first.
func TestAPolicyThatWasRefusedIsAskedForAgain(t *testing.T) {
	runtime.LockOSThread() // it alone loses the capability, and ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all, few [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		t.Fatal(err)
	}
	few = all
	few[0].Effective &^= 1 << unix.CAP_SYS_NICE
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := &realtime{policies: []policy{{"nicer", unix.SchedAttr{Nice: before.Nice - 1}}}, log: slog.New(slog.NewTextHandler(&log, nil))}
	has := func(nice int32) {
		t.Helper()
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil || attr.Nice != nice {
			t.Fatalf("this thread has the niceness %d, want %d (%v)\n%s", attr.Nice, nice, err, &log)
		}
	}
	t.Cleanup(func() {
		(&realtime{policies: []policy{{"as before", unix.SchedAttr{Nice: before.Nice}}}, log: slog.New(slog.DiscardHandler)}).schedule()
	})
	if err := unix.Capset(&header, &few[0]); err != nil {
		t.Fatal(err)
	}
	r.schedule()
	has(before.Nice)
	if err := unix.Capset(&header, &all[0]); err != nil {
		t.Fatal(err)
	}
	r.schedule()
	has(before.Nice - 1)
	if told := log.String(); !strings.Contains(told, "as any other process") || !strings.Contains(told, "by=nicer") {
		t.Errorf("it does not tell what changed:\n%s", told)
	}
}
