// Command kernels boots kernels of Debian releases in an emulated machine, runs the packet suite of the backends in
// them, and writes tables of what passed.
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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"fairlead.dev/fairlead/e2e/kernels/guest"
	"fairlead.dev/fairlead/e2e/kernels/results"
	"fairlead.dev/fairlead/e2e/marked"
)

// backends are those that the tests name.
func backends() []string { return []string{"iptables-nft", "iptables-legacy", "nftables"} }

// features are settings of the kernel that Fairlead needs.
func features() []results.Feature {
	return []results.Feature{
		{Setting: "IP_SET_HASH_IP", For: "mode `iptables`"},
		{Setting: "NFT_FIB_IPV6", For: "mode `nftables`"},
		{Setting: "NFT_NUMGEN", For: "mode `nftables`"},
		{Setting: "NF_CT_PROTO_SCTP", For: "Services of SCTP"},
		{Setting: "NFT_DUP_IPV4", For: "handing over open connections, IPv4"},
		{Setting: "NFT_DUP_IPV6", For: "the same, IPv6"},
	}
}

type options struct {
	releases, processors, boot, suite, run, out, cache string
	hardened                                           bool
	patience                                           time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	var names []string
	for _, r := range guest.Releases() {
		names = append(names, r.Name)
	}
	flag.StringVar(&o.releases, "releases", strings.Join(names, " "), "the releases of Debian whose kernels to boot")
	flag.StringVar(&o.processors, "cpus", "max max,-avx2,-avx", "what to emulate, as qemu takes it")
	flag.StringVar(&o.boot, "boot", "", "what the kernels are booted with besides, as ipv6.disable=1")
	flag.StringVar(&o.suite, "suite", "./speaker/forwarding/blackbox", "the package of tests")
	flag.StringVar(&o.run, "run", ".", "the tests to run, as go test takes it")
	flag.StringVar(&o.out, "out", "", "the file to write the tables to; empty: standard output")
	flag.StringVar(&o.cache, "cache", os.Getenv("FAIRLEAD_CACHE"), "where to keep what is booted")
	flag.BoolVar(&o.hardened, "hardened", false, "have runc there and what confines containers, for -boot \"security=selinux selinux=1\" or apparmor")
	flag.DurationVar(&o.patience, "patience", 90*time.Minute, "how long one kernel may take")
	flag.Parse()
	if _, err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

// run runs the tests in each kernel on each processor. The error is of what could not be tried, or of tests that failed.
func run(ctx context.Context, o options) (runs []results.Run, err error) {
	if !filepath.IsAbs(o.cache) {
		return nil, errors.New("-cache must name a folder by an absolute path, or FAIRLEAD_CACHE")
	}
	var failed []error
	for _, r := range guest.Releases() {
		if !slices.Contains(strings.Fields(o.releases), r.Name) {
			continue
		}
		g, err := guest.Prepare(ctx, r, o.cache)
		if err != nil {
			return runs, err
		}
		if o.hardened {
			if g, err = g.Hardened(ctx, o.cache); err != nil {
				return runs, err
			}
		}
		binary, err := build(ctx, o, r.Arch)
		if err != nil {
			return runs, err
		}
		for processor := range strings.FieldsSeq(o.processors) {
			if strings.Contains(processor, "avx") && r.Arch != "amd64" {
				continue
			}
			one, err := try(ctx, g, processor, binary, o)
			if err != nil {
				return runs, err
			}
			runs, failed = append(runs, one), append(failed, one.Err)
			if err := keep(o.out, runs); err != nil { // hours before the last
				return runs, err
			}
		}
	}
	return runs, errors.Join(failed...)
}

// build builds the tests of a package for an architecture.
func build(ctx context.Context, o options, arch string) (binary string, err error) {
	binary = filepath.Join("build", "packets-"+arch+".test")
	tags := ""
	if o.hardened {
		tags = "hardened"
	}
	c := exec.CommandContext(ctx, "go", "test", "-c", "-tags", tags, "-o", binary, o.suite)
	c.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests for %s: %w: %s", arch, err, out)
	}
	return binary, nil
}

// try runs the tests in one kernel.
func try(ctx context.Context, g guest.Guest, processor, binary string, o options) (results.Run, error) {
	version, settings, err := g.Version()
	if err != nil {
		return results.Run{}, err
	}
	began := time.Now()
	fmt.Printf("=== KERNEL %s, -cpu %s\n", version, processor)
	script := fmt.Sprintf("cd /tmp && FAIRLEAD_TEST_EMULATED=1 exec /tests/%s -test.v -test.short -test.timeout=%s -test.run=%s",
		filepath.Base(binary), o.patience, quoted(o.run))
	within, cancel := context.WithTimeout(ctx, o.patience+time.Minute)
	defer cancel()
	var output bytes.Buffer
	r := results.Run{Release: g.Name, Version: version, Processor: processor, Settings: settings}
	r.Err = g.Run(within, processor, o.boot, script, []string{binary}, io.MultiWriter(os.Stdout, &output))
	r.Output = output.String()
	fmt.Printf("=== TOOK %s\n", time.Since(began).Round(time.Second))
	return r, ctx.Err()
}

// quoted is a word of the shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// keep writes the tables into the page, or to standard output.
func keep(path string, runs []results.Run) error {
	var tables strings.Builder
	if err := results.Write(&tables, runs, backends(), features()); err != nil {
		return err
	}
	return marked.Write(path, "test-kernels", tables.String())
}
