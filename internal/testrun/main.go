// Testrun runs `go test` and closes with a plain count: "N passed, N failed",
// alone on the last line. It is stricter than go test in one thing: a skipped
// test is a failed one, so that a machine that lacks what a test needs cannot
// pass for one that has run it.
//
//	testrun [go test arguments] [-- go test arguments]...
//
// Each group of arguments is one run of go test, one after the other, whatever
// the result of the one before.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stopDelay is how long tests have to clean up after an interrupt.
const stopDelay = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !run(ctx, os.Args[1:], os.Stdout, os.Stderr) {
		os.Exit(1)
	}
}

// run runs every group of args and reports whether all is well.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) bool {
	r := newReport(stdout)
	for _, group := range groups(args) {
		if ctx.Err() != nil {
			r.fail("go test "+strings.Join(group, " "), "not run: interrupted", "")
			continue
		}
		r.startRun()
		err := goTest(ctx, group, r, stderr)
		r.endRun("go test "+strings.Join(group, " "), err)
	}
	return r.close()
}

// groups splits args at each "--".
func groups(args []string) [][]string {
	var split [][]string
	for {
		i := slices.Index(args, "--")
		if i < 0 {
			return append(split, args)
		}
		split, args = append(split, args[:i]), args[i+1:]
	}
}

// goTest runs go test once, feeding what happens to r. Its error is that of
// the process, which r may know the reason for already.
func goTest(ctx context.Context, args []string, r *report, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopDelay
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return errors.Join(feed(events, r), cmd.Wait())
}

// feed reads one event from each line. What is no event is shown as it is.
func feed(lines io.Reader, r *report) error {
	reader := bufio.NewReader(lines)
	for {
		line, err := reader.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			fmt.Fprint(r.out, line)
		default:
			r.add(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events of go test: %w", err)
		}
	}
}
