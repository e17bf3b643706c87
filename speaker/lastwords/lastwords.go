// Package lastwords lets a process learn which part of the one before it crashed. Where code
// of others ends the process in goroutines of its own, nothing else can be done than to
// leave alone, for a while, what it was about.
package lastwords

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
)

// Keep has the runtime write to the file what it says when this process crashes, and
// returns what that of the process before said; "" if it did not crash. The file is for one
// process at a time.
func Keep(file string) (before string, err error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	// The runtime tells labels only when asked to; it looks at this variable whenever that is set.
	if err := os.Setenv("GODEBUG", join(os.Getenv("GODEBUG"), "tracebacklabels=1")); err != nil {
		return "", err
	}
	to, err := os.Create(filepath.Clean(file))
	if err != nil {
		return "", err
	}
	err = debug.SetCrashOutput(to, debug.CrashOptions{})
	return string(text), errors.Join(err, to.Close()) // the runtime has a descriptor of its own
}

func join(settings, one string) string {
	if settings == "" {
		return one
	}
	return settings + "," + one
}

// Label calls f. What crashes in goroutines that it starts, and in those that these start,
// is told by the label.
func Label(key, value string, f func()) {
	pprof.Do(context.Background(), pprof.Labels(key, value), func(context.Context) { f() })
}

// Labelled is the value of a label of the goroutine that crashed.
func Labelled(words, key string) (value string, ok bool) {
	// The runtime writes the goroutine that crashed first.
	first := regexp.MustCompile(`(?m)^goroutine \d+ .*\[.*\]:$`).FindString(words)
	found := regexp.MustCompile(regexp.QuoteMeta(fmt.Sprintf("%q: ", key)) + `("(?:[^"\\]|\\.)*")`).FindStringSubmatch(first)
	if found == nil {
		return "", false
	}
	value, err := strconv.Unquote(found[1])
	return value, err == nil
}
