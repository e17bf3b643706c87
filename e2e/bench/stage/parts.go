package stage

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"fairlead.dev/fairlead/e2e/bench/flows"
)

// Names of the parts of the benchmark that are processes of their own, and their arguments.
const (
	echo      = "echo"
	echoArgs  = "PORT CPU"
	flowing   = "flows"
	flowsArgs = "ADDRESS FLOWS CPU"
)

// Part runs a part of the benchmark that is a process of its own; ok is false if the arguments name
// none. An error is that of the part, or says how it is called.
func Part(args []string) (ok bool, err error) {
	switch strings.Join(args[:min(1, len(args))], "") {
	case echo:
		return true, serve(strings.Join(args[1:], " "))
	case flowing:
		return true, measure(strings.Join(args[1:], " "))
	}
	return false, nil
}

// serve serves flows until its standard input ends, which it does when the benchmark does.
func serve(args string) error {
	var port, cpu int
	if _, err := fmt.Sscan(args, &port, &cpu); err != nil {
		return fmt.Errorf("usage: %s %s: %w", echo, echoArgs, err)
	}
	debug.SetGCPercent(-1) // it makes little garbage, and a pause would show
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	signal.Ignore(syscall.SIGINT) // meant for the benchmark
	return flows.Serve(ctx, port, cpu, func() { fmt.Println("ready") })
}

// measure measures flows, and prints the result.
func measure(args string) error {
	var address string
	var n, cpu int
	_, err := fmt.Sscan(args, &address, &n, &cpu)
	if err != nil {
		return fmt.Errorf("usage: %s %s: %w", flowing, flowsArgs, err)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	result, err := flows.Measure(to, n, cpu)
	if err != nil {
		return err
	}
	return result.Write(os.Stdout)
}
