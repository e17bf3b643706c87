// Command speaker runs on every node: it forwards Services in the kernel and
// announces their addresses. "speaker pulse" is the part that must not stop, a process of
// its own; "speaker cleanup" removes every rule that any speaker has made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fairlead.dev/fairlead/internal/asynclog"
	"fairlead.dev/fairlead/internal/memlimit"
	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/speaker/flags"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/pulse/command"
)

// version is set by the linker.
var version = "dev"

func main() {
	// When the machine shuts down, what reads the output may end first: a line of the log is to fail then, and not to end
	// the process, which has to hand over.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		asynclog.LastWords("speaker: " + err.Error())
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if err := memlimit.Apply(); err != nil {
		return err
	}
	if len(args) > 0 {
		switch args[0] {
		case "pulse":
			return command.Run(ctx, args[1:], asynclog.Stderr(), serve.BuildInfo(version))
		case "cleanup":
			return cleanup(ctx, args[1:])
		}
	}
	lines := asynclog.Start(asynclog.Stderr())
	defer lines.Close(asynclog.Within)
	c, err := flags.Parse(args, lines)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return speak(ctx, c, lines.Lost(), serve.BuildInfo(version))
}

// cleanup removes every rule and set of ours from this node. Neither stopping nor an uninstall does.
func cleanup(ctx context.Context, args []string) error {
	of := flag.NewFlagSet("speaker cleanup", flag.ContinueOnError)
	routeLocalnet := of.String("route-localnet-file", forwarding.RouteLocalnet, flags.RouteLocalnetUsage)
	if err := of.Parse(args); err != nil {
		return err
	}
	if of.NArg() > 0 {
		return fmt.Errorf("speaker cleanup takes no argument %q: it removes what all modes left", of.Arg(0))
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := forwarding.Cleanup(ctx, *routeLocalnet); err != nil {
		return err
	}
	log.Info("every rule and set of ours is removed from this node")
	return nil
}
