package command

import (
	"context"
	"fmt"
	"time"
)

// Pulse guards itself instead of being asked by Kubernetes: a probe would come
// over a port of the node that another program may hold, or start a process in a
// node that is short of memory, and kill a pulse that works. So many misses in a
// row, each after so long, are no busy machine.
const (
	guardEvery  = 10 * time.Second
	guardWithin = 10 * time.Second
	guardMisses = 3
)

// guard asks until ctx ends, and then returns nil. It returns an error when
// there was no answer several times in a row.
func guard(ctx context.Context, healthy func(context.Context) error) error {
	for misses := 0; ; {
		asked, cancel := context.WithTimeout(ctx, guardWithin)
		err := healthy(asked)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			misses = 0
		default:
			misses++
		}
		if misses == guardMisses {
			return fmt.Errorf("no answer %d times in a row: %w", misses, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(guardEvery):
		}
	}
}
