package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// scope is an environment variable: "whole" runs all tests that concern Services, and not
// only those that every cluster must pass.
const scope = "FAIRLEAD_CONFORMANCE"

func all() bool { return os.Getenv(scope) == "whole" }

// TestKubernetesServices has one subtest for each of Kubernetes' tests, run once with each
// backend of the forwarding, or with -short only with that which scenarios have seldom.
func TestKubernetesServices(t *testing.T) {
	focus, modes := conforming, []string{"iptables", "nftables"}
	if all() {
		focus = whole
	}
	if testing.Short() {
		modes = modes[1:]
	}
	run(t, lab.Options{}, focus, required, modes...)
}

// TestAnotherCluster runs them where IPv6 is the first family and the nodes use legacy iptables, or a
// few of them if not all are run.
func TestAnotherCluster(t *testing.T) {
	options := lab.Options{IPv6First: true, LegacyIPTables: true}
	if all() {
		run(t, options, whole, required, "iptables", "nftables")
		return
	}
	run(t, options, sample, nil, "iptables")
}

// TestFlannel runs a few of them where flannel connects pods by VXLAN.
func TestFlannel(t *testing.T) {
	run(t, lab.Options{PodNetwork: lab.Flannel}, sample, nil, "iptables", "nftables")
}

// run runs the tests that match focus, and all those of the titles that the version has, in a lab of its own, once in each mode
// of the forwarding.
func run(t *testing.T, options lab.Options, focus []string, titles func(version string) []string, modes ...string) {
	t.Helper()
	c := start(t, options)
	options.IPv6First = options.IPv6First || len(c.Families()) == 1
	var all []string
	if titles != nil {
		all = titles(c.Kubernetes())
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := c.Install(ctx, 3, "forwarding.mode="+mode, "forwarding.externalIPs=All"); err != nil {
				t.Fatal(err)
			}
			isSo(t, c, options, mode)
			conform(t, c, focus, skipPatterns(options.IPv6First), all)
		})
	}
}

// isSo fails unless the cluster is what the options say: of that version and first family, and with our rules in that
// iptables.
func isSo(t *testing.T, c *product.Cluster, options lab.Options, mode string) {
	t.Helper()
	first, err := c.Kubectl(t.Context(), "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(first, ":") != options.IPv6First {
		t.Errorf("the first Service has the ClusterIP %s", first)
	}
	versions, err := c.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	if server, absent := c.Kubectl(t.Context(), "get", "--raw", "/version"); err != nil || absent != nil ||
		!strings.Contains(server, `"`+c.Kubernetes()+`"`) || strings.Count(versions, c.Kubernetes()) != len(c.Nodes()) {
		t.Errorf("the API server is %s, kubelets are %s: want %s %v", server, versions, c.Kubernetes(), errors.Join(err, absent))
	}
	if mode != "iptables" {
		return
	}
	save := "iptables-nft-save"
	if options.LegacyIPTables {
		save = "iptables-legacy-save"
	}
	if options.IPv6First {
		save = "ip6" + strings.TrimPrefix(save, "ip")
	}
	rules, err := c.Node(1).Exec(t.Context(), save, "-t", "nat")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(rules, ":FAIRLEAD-DISPATCH ") {
		t.Errorf("%s has none of our rules:\n%s", save, rules)
	}
}

// conform runs the tests that match focus and not skip, of which there must be one for each pattern of focus,
// and all of those titles.
func conform(t *testing.T, c *product.Cluster, focus, skip, titles []string) {
	t.Helper()
	reports := t.TempDir()
	var output bytes.Buffer
	began := time.Now()
	failed := c.RunE2E(t.Context(), lab.E2E{
		Focus: focus, Skip: skip, Processes: 6, Timeout: 20 * time.Minute, Reports: reports,
	}, lab.Stdio{Out: &output, Err: &output})
	t.Logf("ran for %v", time.Since(began).Round(time.Second))

	specs := ran(t, reports)
	if len(specs) == 0 {
		t.Fatalf("no test was run: %v\n%s", failed, &output)
	}
	for _, s := range specs {
		t.Run(title(s.name), func(t *testing.T) {
			t.Logf("took %v", s.took)
			switch {
			case s.skips != "":
				t.Skip(s.skips)
			case !s.passed:
				t.Error(s.log)
			}
		})
	}
	for _, pattern := range focus {
		matches := regexp.MustCompile(pattern).MatchString
		if !slices.ContainsFunc(specs, func(s spec) bool { return matches(s.name) }) {
			t.Errorf("no test was run that matches %s", pattern)
		}
	}
	if absent := notRun(titles, specs); len(absent) > 0 {
		t.Errorf("every cluster must pass these tests, and they were not run or skipped themselves:\n%s", strings.Join(absent, "\n"))
	}
	if failed != nil && !t.Failed() {
		t.Errorf("%v\n%s", failed, &output)
	}
	if t.Failed() {
		t.Log(c.State(time.Since(began)))
	}
}

// start starts the lab with Fairlead in it, and takes it down when the test ends.
func start(t *testing.T, options lab.Options) *product.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	options.Progress = t.Output()
	c, err := product.Start(ctx, options, lab.Conformance)
	product.EndWith(t, err)
	if err == nil {
		err = c.Sample(ctx, "pool.yaml", "l2advertisement.yaml")
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ran gives the tests that were run, of which there must be some.
func ran(t *testing.T, reports string) []spec {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(reports, "junit_*.xml"))
	if err != nil {
		t.Fatal(err)
	}
	var specs []spec
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		some, err := readReport(f)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, some...)
	}
	return specs
}
