package bgp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/lastwords"
)

// crashing makes the test binary a speaker process that works in this directory.
const crashing = "FAIRLEAD_BGP_TEST_CRASH"

// speakUntilItCrashes holds the sessions of a file, and writes what it says of them.
func speakUntilItCrashes(dir string) int {
	text, err := os.ReadFile(filepath.Join(dir, "want"))
	want := map[string]desired.Session{}
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	for name, session := range want {
		session.Routes = prefixes(vip)
		want[name] = session
	}
	s := New(slog.New(slog.DiscardHandler))
	record, _, unknown := lastwords.Recall(dir, CrashLabel, time.Now())
	if err != nil || unknown != nil {
		fmt.Fprintln(os.Stderr, err, unknown)
		return 1
	}
	s.LeaveAlone(record)
	for {
		if _, err := s.Apply(context.Background(), want); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		said := filepath.Join(dir, "bad")
		if err := os.WriteFile(said+".new", []byte(s.States()["bad"].LastError), 0o600); err != nil || os.Rename(said+".new", said) != nil {
			return 1
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestARouterThatEndsTheProcess sends a message of a type that nobody knows. The process
// ends, whatever one does; the next one holds its other session and leaves that router alone.
func TestARouterThatEndsTheProcess(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	good, bad := startPeer(t, "127.0.0.31:0", nil), startPeer(t, "127.0.0.32:0", nil)
	dir := t.TempDir()
	want, err := json.Marshal(map[string]desired.Session{"good": {Identity: good.identity()}, "bad": {Identity: bad.identity()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "want"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	speak := func() (ended chan error) {
		var words strings.Builder
		speaker := exec.Command("/proc/self/exe")
		speaker.Env = append(os.Environ(), crashing+"="+dir)
		speaker.Stderr = &words
		if err := speaker.Start(); err != nil {
			t.Fatal(err)
		}
		ended = make(chan error, 1)
		go func() {
			err := speaker.Wait()
			ended <- fmt.Errorf("%w: %s", err, words.String())
		}()
		t.Cleanup(func() { _ = speaker.Process.Kill() })
		return ended
	}
	first := speak()
	good.waitFor(t, vip)
	bad.waitFor(t, vip)
	unknown := make([]byte, 19)
	for i := range 16 {
		unknown[i] = 0xff
	}
	unknown[17], unknown[18] = 19, 77
	if _, err := bad.conn().Write(unknown); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-first:
		if !strings.Contains(err.Error(), "nil pointer dereference") {
			t.Fatalf("the process ended otherwise than it should: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the process outlives the message: is all of this still needed?")
	}
	waitFor(t, "the sessions are gone", func() bool { _, up := good.sessions(); return !up })
	before, _ := bad.sessions()
	second := speak()
	good.waitFor(t, vip)
	waitFor(t, "the router is left alone, with a reason", func() bool {
		said, err := os.ReadFile(filepath.Join(dir, "bad"))
		return err == nil && strings.Contains(string(said), "ended the whole speaker (so far 1, last at ")
	})
	if now, up := bad.sessions(); up || now != before {
		t.Errorf("the router that ends processes has a session: %d, before %d", now, before)
	}
	select {
	case err := <-second:
		t.Errorf("the second process ended: %v", err)
	default:
	}
	// Long ago means that it is tried again.
	record := lastwords.Record{crashLabel("bad", bad.identity()): {Times: 1, Last: time.Now().Add(-time.Hour)}}
	s := newSpeaker(t)
	s.LeaveAlone(record)
	mustApply(t, s, map[string]desired.Session{"bad": {Identity: bad.identity(), Routes: prefixes(vip)}})
	bad.waitFor(t, vip)
}
