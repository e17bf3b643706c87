// Package run starts the parts of a process together and stops them together.
package run

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// Task is something that runs until its context ends.
type Task struct {
	Name string
	Run  func(ctx context.Context) error
}

// All runs the tasks until ctx ends or one of them returns early, which is a
// failure of the whole process: it is better restarted than half alive. It returns
// after all have returned, with the name of the task that failed first.
func All(ctx context.Context, tasks ...Task) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		group.Go(func() error {
			err := t.Run(ctx)
			switch {
			case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
				return nil
			case err == nil:
				return fmt.Errorf("%s: ended by itself", t.Name)
			default:
				return fmt.Errorf("%s: %w", t.Name, err)
			}
		})
	}
	return group.Wait()
}
