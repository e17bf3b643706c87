// Command demo shows Fairlead at work in the lab, and leaves the lab up to be explored.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"fairlead.dev/fairlead/e2e/demo/show"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := show.Run(ctx, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "\nThe demo stopped: %v\nTake down what is up with: make demo-down\n", err)
		os.Exit(1)
	}
}
