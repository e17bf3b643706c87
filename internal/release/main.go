// Release is the part of `make release` and `make publish` that is about OCI artifacts. See
// docs/releasing.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"fairlead.dev/fairlead/internal/release/artifact"
)

const usage = `usage: release -layout DIR -created TIME chart FILE
       release -layout DIR -created TIME files NAME:TAG FILE...
       release -layout DIR publish REGISTRY`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	layout := flags.String("layout", "dist/oci", "the OCI layout")
	created := flags.String("created", "", "when the release was made, in RFC 3339")
	architectures := flags.String("architectures", "amd64 arm64", "what a published image must be for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	args = flags.Args()
	switch {
	case len(args) == 2 && args[0] == "chart":
		return artifact.AddChart(ctx, *layout, args[1], *created)
	case len(args) > 2 && args[0] == "files":
		return artifact.AddFiles(ctx, *layout, args[1], *created, args[2:])
	case len(args) == 2 && args[0] == "publish":
		return artifact.Publish(ctx, *layout, args[1], strings.Fields(*architectures), os.Stdout)
	}
	return errors.New(usage)
}
