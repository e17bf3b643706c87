// Command kubectl-fairlead is a plugin for kubectl, which calls it for "kubectl
// fairlead". It has tools for operators of Fairlead.
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

	"fairlead.dev/fairlead/cmd/kubectl-fairlead/migrate"
	"fairlead.dev/fairlead/cmd/kubectl-fairlead/skew"
)

// version is set by the linker.
var version = "dev"

const usage = `Usage:
  kubectl fairlead migrate [flags]   say MetalLB's objects in Fairlead's kinds
  kubectl fairlead version [flags]   tell the versions of this program, the chart, the controller and the speakers
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "kubectl fairlead:", err)
		os.Exit(1)
	}
}

// command runs the command that the arguments name.
func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errors.New("no command given")
	}
	switch args[0] {
	case "migrate":
		return migrate.Run(ctx, args[1:], stdin, stdout, stderr)
	case "version":
		return skew.Run(ctx, version, args[1:], stdout, stderr)
	case "help", "-h", "-help", "--help":
		_, err := fmt.Fprint(stdout, usage)
		return err
	default:
		fmt.Fprint(stderr, usage)
		return fmt.Errorf("unknown command %q", args[0])
	}
}
