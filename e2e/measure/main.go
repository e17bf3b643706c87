// Command measure takes the figures of docs/benchmarks/lab.md in a lab that is up with
// Fairlead installed (make demo leaves one): how long from the creation of a Service
// to the first reply, how many requests are lost while the speakers restart, and the
// memory of controller and speaker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// namespace is where the web servers that are measured run.
const namespace = "measure"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	runs := flag.Int("runs", 10, "Services created for each protocol")
	requests := flag.Int("requests", 10000, "requests sent while the speakers restart, for each protocol")
	flag.Parse()
	if err := measure(ctx, os.Stdout, *runs, *requests); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, out io.Writer, runs, requests int) (err error) {
	l, err := lab.Open()
	if err != nil {
		return err
	}
	c, err := product.New(l)
	if err != nil {
		return err
	}
	if err := c.DeployWeb(ctx, namespace); err != nil {
		return err
	}
	defer func() {
		_, gone := c.Kubectl(context.WithoutCancel(ctx), "delete", "namespace", namespace, "--wait=false")
		err = errors.Join(err, gone)
	}()
	for _, part := range []func() error{
		func() error { return firstReplies(ctx, out, c, runs) },
		func() error { return restarts(ctx, out, c, requests) },
		func() error { return memory(ctx, out, c) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}
