// Command lab builds, starts, uses and takes down the lab: a Kubernetes cluster
// in network namespaces of this machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
)

const usage = `usage: lab COMMAND
  check                  what this machine lacks for a lab
  build [PART...]        make the programs and images, once; PART: conformance,
                         metallb, frr-k8s, proxy, helm3, flannel, kube-router,
                         kubernetes-1.31
  up [FLAGS]             start a lab (lab up -h)
  down                   remove every trace of it
  status                 its machines, nodes and pods
  kubectl ARGS...        kubectl as the administrator
  helm3|helm4 ARGS...    Helm as the administrator
  in NAME COMMAND...     run a command on a machine: cp, client, router, node1 ...
  router COMMAND...      FRR commands, each one argument: lab router 'show bgp summary'
  load-image FILE        give an image archive to every node
  e2e [FLAGS]            run end-to-end tests of Kubernetes (lab e2e -h)
  kill|start NODE        cut a node's power; bring it back
  unplug|plug NAME       pull a machine's cable; put it back
`

var errUsage = errors.New("no such command")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(exit.ExitCode())
	}
	if errors.Is(err, errUsage) {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	command, args := args[0], args[1:]
	switch command {
	case "check":
		return check()
	case "build":
		return build(ctx, args)
	case "up":
		return up(ctx, args)
	case "down":
		return lab.Down(ctx)
	}
	l, err := lab.Open()
	if err != nil {
		return err
	}
	return use(ctx, l, command, args)
}

// use runs the commands that need a running lab.
func use(ctx context.Context, l *lab.Lab, command string, args []string) error {
	stdio := lab.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	switch {
	case command == "status":
		return l.RunKubectl(ctx, stdio, "get", "nodes,pods", "--all-namespaces", "-o", "wide")
	case command == "kubectl":
		return l.RunKubectl(ctx, stdio, args...)
	case command == "helm3", command == "helm4":
		out, err := l.Helm(ctx, int(command[4]-'0'), args...)
		fmt.Print(out)
		return err
	case command == "router" && len(args) > 0:
		out, err := l.Router.VTYSH(ctx, args...)
		fmt.Print(out)
		return err
	case command == "load-image" && len(args) == 1:
		return l.LoadImage(ctx, args[0])
	case command == "e2e":
		return e2e(ctx, l, stdio, args)
	case len(args) == 0:
		return errUsage
	}
	if command == "kill" || command == "start" {
		return power(ctx, l, command, args[0])
	}
	machine, err := l.Machine(args[0])
	if err != nil {
		return err
	}
	switch command {
	case "in":
		if len(args) < 2 {
			return errUsage
		}
		return machine.Run(ctx, stdio, args[1:]...)
	case "unplug":
		return machine.Unplug()
	case "plug":
		return machine.Plug()
	}
	return errUsage
}

func power(ctx context.Context, l *lab.Lab, command, name string) error {
	i := slices.IndexFunc(l.Nodes(), func(n *lab.Node) bool { return n.Name == name })
	if i < 0 {
		return fmt.Errorf("the lab has no node %q", name)
	}
	if command == "kill" {
		return l.Nodes()[i].Kill(ctx)
	}
	return l.Nodes()[i].Start(ctx)
}

func up(ctx context.Context, args []string) error {
	var options lab.Options
	flags := flag.NewFlagSet("lab up", flag.ContinueOnError)
	flags.IntVar(&options.Nodes, "nodes", 3, "how many nodes")
	flags.StringVar(&options.Proxy, "proxy", "", "run the real kube-proxy in mode iptables or nftables (default none)")
	flags.BoolVar(&options.BFD, "bfd", false, "run BFD on the router")
	flags.BoolVar(&options.IPv6First, "ipv6-first", false, "have IPv6 for the first family of the cluster")
	flags.BoolVar(&options.LegacyIPTables, "legacy-iptables", false, "have the nodes use legacy iptables")
	flags.BoolVar(&options.ControlPlaneOnNode, "control-plane-on-node", false, "run the control plane on node1 (default on a machine of its own)")
	flags.BoolVar(&options.Older, "older", false, "run the oldest Kubernetes that is supported (default the newest)")
	flags.Func("cni", "the pod network: bridge, bridge-ipv6 (of a cluster of IPv6 alone), flannel (by VXLAN), flannel-host-gw or kube-router (default bridge)", func(name string) error {
		options.PodNetwork = lab.PodNetwork(name)
		return nil
	})
	timeout := flags.Duration("timeout", 3*time.Minute, "give up after this long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	options.Progress = os.Stderr
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	_, err := lab.Up(ctx, options)
	return err
}

func build(ctx context.Context, names []string) error {
	var parts []lab.Part
	for _, name := range names {
		if !slices.Contains(lab.Parts(), lab.Part(name)) {
			return errUsage
		}
		parts = append(parts, lab.Part(name))
	}
	return lab.Build(ctx, os.Stderr, parts...)
}

func e2e(ctx context.Context, l *lab.Lab, stdio lab.Stdio, args []string) error {
	tests := lab.E2E{Processes: 1}
	flags := flag.NewFlagSet("lab e2e", flag.ContinueOnError)
	add := func(to *[]string) func(string) error {
		return func(pattern string) error { *to = append(*to, pattern); return nil }
	}
	flags.Func("focus", "run the tests whose name this regular expression matches; may be repeated", add(&tests.Focus))
	flags.Func("skip", "but not those that this one matches; may be repeated", add(&tests.Skip))
	flags.IntVar(&tests.Processes, "procs", 1, "how many tests run at a time")
	flags.DurationVar(&tests.Timeout, "timeout", time.Hour, "how long all may take")
	flags.StringVar(&tests.Reports, "reports", "", "a directory for a JUnit report")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return l.RunE2E(ctx, tests, stdio)
}

// check prints each requirement and fails if one is not met.
func check() error {
	var packages []string
	for _, r := range lab.Requirements() {
		state := "ok"
		if r.Err != nil {
			state = r.Err.Error()
			packages = append(packages, r.Package)
		}
		fmt.Printf("%-24s %s\n", r.Name, state)
	}
	slices.Sort(packages)
	if packages = slices.DeleteFunc(slices.Compact(packages), func(name string) bool { return name == "" }); len(packages) > 0 {
		fmt.Printf("\napt-get install --no-install-recommends %s\n", strings.Join(packages, " "))
	}
	return errors.Join(lab.Missing()...)
}
