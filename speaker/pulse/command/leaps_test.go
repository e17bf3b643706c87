package command_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// leaping builds pulse with a standard library whose clock on the wall leaps by an hour forth or back
// ten times a second. What time has passed it tells as ever, like the kernel when its clock is set.
func leaping(t *testing.T) (program string) {
	t.Helper()
	goCommand := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	original := filepath.Join(goCommand("env", "GOROOT"), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const before = "\tmono -= startNano\n"
	const leap = "\tsec += (mono/100_000_000%3 - 1) * 3600\n"
	if strings.Count(string(source), before) != 1 {
		t.Fatalf("%s reads the clocks in another way than this test knows", original)
	}
	dir := t.TempDir()
	changed, program := filepath.Join(dir, "time.go"), filepath.Join(dir, "pulse")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		changed: strings.Replace(string(source), before, before+leap, 1), filepath.Join(dir, "overlay.json"): string(overlay),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	goCommand("test", "-c", "-overlay="+filepath.Join(dir, "overlay.json"), "-o", program, ".")
	return program
}

// span is from the earliest to the latest time that was told.
type span struct {
	mu          sync.Mutex
	first, last time.Time
}

func (s *span) read(line string) {
	var told struct{ Time time.Time }
	if json.Unmarshal([]byte(line), &told) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first.IsZero() || told.Time.Before(s.first) {
		s.first = told.Time
	}
	if told.Time.After(s.last) {
		s.last = told.Time
	}
}

func (s *span) lasts() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Sub(s.first)
}

// TestClocksThatLeap: the clocks of three nodes go back and forth by an hour all the time. Nobody is
// taken for dead, also not while the key is replaced, a death is noticed as soon as ever, and
// a node that restarts keeps its addresses.
func TestClocksThatLeap(t *testing.T) {
	t.Parallel()
	program := leaping(t)
	inBothAtOnce(t, func(t *testing.T, p plan) { leapingClocks(t, p, program) })
}

func leapingClocks(t *testing.T, p plan, program string) {
	l, told := newLabOf(t, p, 3), &span{}
	for _, n := range l.nodes {
		n.program, n.reads = program, told.read
	}
	s := stormOf(t, l, 6)
	s.asking.anew()
	time.Sleep(5 * time.Second)
	for _, n := range s.nodes {
		table := s.spread(n)
		table.Key = view.Secret("another key of the lab, 32 bytes")
		n.say(table)
	}
	time.Sleep(5 * time.Second)
	s.expectRanked(t, "the clocks leap")
	if calm := s.asking.found(); calm.moves > 0 || calm.double > 0 {
		t.Errorf("the clocks leap: %+v", calm)
	}
	first := s.nodes[0]
	first.terminate()
	first.startPulse()
	table := s.spread(first)
	table.Key = view.Secret("another key of the lab, 32 bytes")
	first.say(table)
	s.expectRanked(t, "restarted")
	if found := s.asking.found(); found.moves > 0 || found.double > 0 {
		t.Errorf("restarted: %+v", found)
	}
	s.asking.anew()
	killed := time.Now()
	first.kill()
	for _, n := range s.nodes[1:] {
		n.until("the first is dead", func(state api.State) bool { return !slices.Contains(state.Alive, first.name) })
	}
	took := time.Since(killed)
	t.Logf("a death was noticed after %v; the clocks told of %v", took.Round(time.Millisecond), told.lasts().Round(time.Second))
	if took > longestDetection {
		t.Errorf("a death was noticed after %v", took)
	}
	if told.lasts() < time.Hour {
		t.Errorf("the clocks did not leap: they told of %v", told.lasts())
	}
}
