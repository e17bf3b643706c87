// Package run starts the parts of a process together and stops them together.
package run

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// Task is a part of a process.
type Task interface {
	// String names the task in errors.
	String() string
	// Run works until ctx ends. An earlier return, with or without an error, is a failure
	// of the process.
	Run(ctx context.Context) error
	// Ready returns nil once the task does its part, and before that an error that says
	// what it waits for.
	Ready() error
}

// Func returns a task that runs f and is always ready.
func Func(name string, f func(ctx context.Context) error) Task { return function{name, f} }

type function struct {
	name string
	run  func(ctx context.Context) error
}

func (f function) String() string                { return f.name }
func (f function) Run(ctx context.Context) error { return f.run(ctx) }
func (function) Ready() error                    { return nil }

// All runs the tasks until ctx ends or one of them returns early: a process is better
// restarted than half alive. It returns after all have returned. The error is that of the
// task that failed first, and names it.
func All(ctx context.Context, tasks ...Task) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		group.Go(func() error {
			err := t.Run(ctx)
			switch {
			case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
				return nil
			case err == nil:
				return fmt.Errorf("%s: ended by itself", t)
			default:
				return fmt.Errorf("%s: %w", t, err)
			}
		})
	}
	return group.Wait()
}

// Ready returns nil once all tasks are ready, and before that the error of the first that
// is not.
func Ready(tasks ...Task) error {
	for _, t := range tasks {
		if err := t.Ready(); err != nil {
			return err
		}
	}
	return nil
}
