// Package program lets programs such as benchmarks use the environments of tests, such as
// networks of namespaces and API servers.
package program

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// Run gives f what the environments take for a test. The error of f, and what f and the cleanups
// that it registered report, are the error; the cleanups have run when Run returns. f must call
// FailNow, Fatal and Skip, if at all, in its own goroutine.
func Run(f func(tb testing.TB) error) error {
	r := &run{}
	r.do(func() {
		if err := f(r); err != nil {
			r.errs = append(r.errs, err)
		}
	})
	for _, cleanup := range slices.Backward(r.cleanups) {
		r.do(cleanup)
	}
	return errors.Join(r.errs...)
}

// run is one call of Run. No other package can implement testing.TB, but a struct may hold one;
// the methods that are not here are not for environments to use.
type run struct {
	testing.TB
	errs      []error
	cleanups  []func()
	artifacts string // a directory; "": none yet
}

// Failed reports whether an error was reported.
func (r *run) Failed() bool { return len(r.errs) > 0 }

// ArtifactDir makes a directory for what is left of a run that failed, and an error that names it.
func (r *run) ArtifactDir() string {
	if r.artifacts == "" {
		dir, err := os.MkdirTemp("", "failed-run-")
		if err != nil {
			r.Error(err)
			return os.TempDir()
		}
		r.artifacts = dir
		r.Errorf("what is left of it is in %s", dir)
	}
	return r.artifacts
}

// TempDir makes a directory that goes with the cleanups.
func (r *run) TempDir() string {
	dir, err := os.MkdirTemp("", "run-")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			r.Error(err)
		}
	})
	return dir
}

func (r *run) Log(args ...any) { fmt.Fprintln(os.Stderr, args...) }

func (r *run) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// over ends what do does.
type over struct{}

func (r *run) do(f func()) {
	defer func() {
		if p := recover(); p != nil && p != (over{}) {
			panic(p)
		}
	}()
	f()
}

func (r *run) Helper() {}

func (r *run) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *run) Error(args ...any) { r.errs = append(r.errs, errors.New(fmt.Sprint(args...))) }

func (r *run) Errorf(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *run) FailNow() { panic(over{}) }

func (r *run) Fatal(args ...any) {
	r.Error(args...)
	r.FailNow()
}

func (r *run) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

// Skip is a failure: what cannot be done here was asked for.
func (r *run) Skip(args ...any) { r.Fatal(args...) }

func (r *run) Skipf(format string, args ...any) { r.Fatalf(format, args...) }
