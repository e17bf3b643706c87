package bgp

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// apart tells that this process runs one test for another one.
const apart = "FAIRLEAD_TEST_APART"

// runsApart runs a test, or one of its subtests, beside others in a process and a network of its
// own, and tells that it has: the test has nothing left to do then. It tells false where the
// test is to go on, which is in that process, and everywhere if nothing is isolated.
//
//	if runsApart(t) {
//		return
//	}
//
// It is for tests that wait more than they work and that need interfaces, addresses or daemons
// which no other test may have. The test around a subtest has to be parallel, too.
func runsApart(t *testing.T) (done bool) {
	t.Helper()
	if !netlab.IsIsolated() || os.Getenv(apart) != "" {
		if netlab.IsIsolated() {
			t.Cleanup(func() { netlab.KeepState(t, "host") })
		}
		return false
	}
	t.Parallel()
	args := []string{"-test.v", "-test.count=1", "-test.run=" + onlyTest(t.Name())}
	if end, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+time.Until(end).String())
	}
	for _, arg := range os.Args[1:] {
		name, _, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(arg, "-test.") || slices.Contains([]string{"-test.short", "-test.artifacts", "-test.outputdir"}, name) {
			args = append(args, arg) // of rapid, say
		}
	}
	// The process dies with the thread that started it, which must not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	process := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	process.Env = append(os.Environ(), apart+"=1")
	process.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	raw, err := process.CombinedOutput()
	said := string(raw)
	// Not at the beginning of lines, where it would be taken for results of this process.
	shown := "| " + strings.ReplaceAll(strings.TrimSpace(said), "\n", "\n| ")
	switch {
	case err != nil:
		t.Errorf("on its own: %v\n%s", err, shown)
	case !strings.Contains(said, "=== RUN   "+t.Name()+"\n"):
		t.Errorf("it was not found on its own:\n%s", shown)
	case strings.Contains(said, "--- SKIP: "+t.Name()+" "):
		t.Skip(shown)
	default:
		t.Log(shown)
	}
	return true
}

// onlyTest is the pattern of one test.
func onlyTest(name string) string {
	elements := strings.Split(name, "/")
	for i, element := range elements {
		elements[i] = "^" + regexp.QuoteMeta(element) + "$"
	}
	return strings.Join(elements, "/")
}
