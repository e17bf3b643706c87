package lastwords_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/lastwords"
)

const directory = "FAIRLEAD_LASTWORDS_TEST"

// TestMain makes the test binary a process that crashes in a goroutine of a goroutine.
func TestMain(m *testing.M) {
	dir := os.Getenv(directory)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, _, err := lastwords.Recall(dir, "router", time.Now()); err != nil {
		os.Exit(3)
	}
	lastwords.Label("router", `tor "1"`, func() {
		go func() {
			go func() { panic("goroutine 7 [running labels:{\"router\": \"another\"}]:") }()
		}()
	})
	select {}
}

func TestWhatCrashedIsRecalled(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC)
	if _, what, err := lastwords.Recall(dir, "router", now); what != "" || err != nil {
		t.Fatalf("before anything: %q, %v", what, err)
	}
	for n := 1; n <= 2; n++ {
		crash := exec.Command("/proc/self/exe")
		crash.Env = append(os.Environ(), directory+"="+dir)
		if err := crash.Run(); crash.ProcessState.ExitCode() != 2 {
			t.Fatalf("it did not crash: %v", err)
		}
		record, what, err := lastwords.Recall(dir, "router", now)
		if what != `tor "1"` || err != nil || record[what] != (lastwords.Crash{Times: n, Last: now}) {
			t.Fatalf("after %d crashes: %q, %v, %v", n, what, record, err)
		}
	}
	record, what, err := lastwords.Recall(dir, "router", now)
	if what != "" || err != nil || len(record) != 1 {
		t.Errorf("a crash is told twice: %q, %v, %v", what, record, err)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	now, r := time.Now(), lastwords.Record{}
	for n, want := range []time.Duration{time.Minute, 11 * time.Minute, 22 * time.Minute, 44 * time.Minute, time.Hour, time.Hour} {
		r.Note("tor", now)
		if got := r["tor"].Pause(); got != want || !r["tor"].Until().Equal(now.Add(want)) {
			t.Errorf("pause %d is %v, want %v", n+1, got, want)
		}
	}
	r.Note("leaf", now.Add(24*time.Hour))
	if _, known := r["tor"]; known || r["leaf"].Times != 1 {
		t.Errorf("a day later: %v", r)
	}
}

func TestADamagedRecordIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "crashes.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	record, _, err := lastwords.Recall(dir, "router", time.Now())
	if err == nil || record == nil || len(record) != 0 {
		t.Errorf("%v, %v", record, err)
	}
}
