// Command podnetworks runs the main scenarios, Kubernetes' own tests and those of NetworkPolicies in labs with other pod
// networks, and writes a table of what passed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/marked"
	"fairlead.dev/fairlead/e2e/product"
)

// suite is tests of one package.
type suite struct {
	column, pkg, run string
	on               []lab.PodNetwork // none: all
}

func suites() []suite {
	return []suite{
		{column: "scenarios", pkg: "./e2e/scenarios", run: "^(TestLayer2ServesAndKeepsTheClientsAddress|TestBGPServesFromEveryNode|" +
			"TestOnlyNodesWithEndpointsAnnounce|TestForwardingInPlaceOfKubeProxy|TestNoEndpointsRefuses|TestANodeDies)$"},
		{column: "large packets", pkg: "./e2e/scenarios", run: "^TestLargePacketsPass$"},
		{column: "Kubernetes' tests, `iptables`", pkg: "./e2e/conformance", run: "^TestKubernetesServices$/^iptables$"},
		{column: "Kubernetes' tests, `nftables`", pkg: "./e2e/conformance", run: "^TestKubernetesServices$/^nftables$"},
		{column: "NetworkPolicies", pkg: "./e2e/podnetworks/policies", run: ".", on: []lab.PodNetwork{lab.KubeRouter}},
	}
}

// target is what makes the page.
const target = "test-pod-networks"

type options struct{ networks, suites, out string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.networks, "networks", "bridge bridge-ipv6 flannel flannel-host-gw kube-router", "the pod networks to try")
	flag.StringVar(&o.suites, "suites", ".", "the columns to fill: those whose names match this regular expression")
	flag.StringVar(&o.out, "out", "", "the page to write the table into; empty: standard output")
	flag.Parse()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "podnetworks:", err)
		os.Exit(1)
	}
}

// run fills the table row by row. An error says what failed in all.
func run(ctx context.Context, o options, out io.Writer) error {
	wanted, err := regexp.Compile(o.suites)
	if err != nil {
		return err
	}
	var rows [][]string
	var failed []error
	for network := range strings.FieldsSeq(o.networks) {
		row := []string{network}
		for _, s := range suites() {
			cell := "–"
			if wanted.MatchString(s.column) && (s.on == nil || slices.Contains(s.on, lab.PodNetwork(network))) {
				said, err := try(ctx, s, network, out)
				cell = count(said)
				if err != nil {
					failed = append(failed, fmt.Errorf("%s, %s: %w", network, s.column, err))
				}
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return errors.Join(append(failed, marked.Write(o.out, target, table(rows)))...)
}

// try runs the tests of the suite in labs with that network, and returns what go test said.
func try(ctx context.Context, s suite, network string, out io.Writer) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-count=1", "-timeout=40m", "-run="+s.run, s.pkg)
	cmd.Env = append(os.Environ(), product.PodNetwork+"="+network)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &said), os.Stderr
	err := cmd.Run()
	return said.String(), err
}

// count tells in words what the tests came to that have no parts.
func count(said string) string {
	all := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+) \(`).FindAllStringSubmatch(said, -1)
	n := map[string]int{}
	for _, one := range all {
		if !slices.ContainsFunc(all, func(other []string) bool { return strings.HasPrefix(other[2], one[2]+"/") }) {
			n[one[1]]++
		}
	}
	if n["FAIL"]+n["SKIP"] > 0 || len(all) == 0 {
		return fmt.Sprintf("**%d failed**, %d skipped, %d passed", n["FAIL"], n["SKIP"], n["PASS"])
	}
	return fmt.Sprintf("%d passed", n["PASS"])
}

func table(rows [][]string) string {
	head := []string{"Pod network"}
	for _, s := range suites() {
		head = append(head, s.column)
	}
	var b strings.Builder
	for i, row := range append([][]string{head}, rows...) {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("| --- ", len(head)) + "|\n")
		}
	}
	return b.String()
}
