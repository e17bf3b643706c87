// Package migrate says MetalLB's objects, read from the cluster or from files, in Fairlead's kinds.
package migrate

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/fairlead/internal/metallb"
)

const usage = `Reads MetalLB's objects from the cluster, or from files, and prints what says the same
in Fairlead's kinds, for kubectl apply -f -. It changes nothing. What is lost, what
differs and what there is to do is told on standard error, a line each:

  LOST     MetalLB does it, Fairlead does not, or not yet
  DIFFERS  Fairlead does it in another way
  DO       something for you to do

Usage:
  kubectl fairlead migrate [flags]

Flags:
`

// Run prints the translation of MetalLB's objects to stdout, and what there is to
// tell about it to stderr. An error is that of the flags, of the API server or of a file, or says with -strict that
// something is lost.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var (
		files  []string
		in     metallb.Namespaces
		where  cluster
		strict bool
		kinds  []string
	)
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.Func("f", "read this `file` (YAML or JSON, -: standard input) and not the cluster; may be repeated", func(path string) error {
		files = append(files, path)
		return nil
	})
	flags.StringVar(&in.MetalLB, "metallb-namespace", "metallb-system", "the `namespace` that MetalLB runs in")
	flags.StringVar(&in.Fairlead, "fairlead-namespace", "fairlead-system", "the `namespace` that Fairlead runs in")
	flags.StringVar(&where.kubeconfig, "kubeconfig", "", "the kubeconfig `file`; default: as kubectl finds it")
	flags.StringVar(&where.context, "context", "", "the `context` of the kubeconfig")
	flags.Func("kinds", "print objects of these `kinds` of ours only, such as IPAddressPool,BGPPeer; default: all", func(list string) error {
		kinds = strings.Split(list, ",")
		for _, kind := range kinds {
			if !slices.Contains(metallb.Kinds(), kind) {
				return fmt.Errorf("%q is none of %s", kind, strings.Join(metallb.Kinds(), ", "))
			}
		}
		return nil
	})
	flags.BoolVar(&strict, "strict", false, "if anything is lost, print no objects and exit with status 1")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q: give files with -f", flags.Arg(0))
	}
	var (
		objects []unstructured.Unstructured
		err     error
	)
	if len(files) > 0 {
		objects, err = readFiles(files, stdin)
	} else {
		objects, err = where.read(ctx, in.MetalLB)
	}
	if err != nil {
		return err
	}
	return tell(metallb.Translate(objects, in), kinds, strict, stdout, stderr)
}

// tell prints a translation: of the objects those of some kinds, or all where none is named.
func tell(translation *metallb.Translation, kinds []string, strict bool, stdout, stderr io.Writer) error {
	for _, finding := range translation.Findings {
		fmt.Fprintln(stderr, finding)
	}
	if lost := translation.Lost(); strict && lost > 0 {
		return fmt.Errorf("lost: %d, see above; nothing is printed (--strict)", lost)
	}
	manifest, err := translation.Manifest(kinds...)
	if err != nil {
		return err
	}
	_, err = stdout.Write(manifest)
	return err
}

// readFiles reads the objects of all files.
func readFiles(paths []string, stdin io.Reader) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	for _, path := range paths {
		var (
			text []byte
			err  error
		)
		if path == "-" {
			text, err = io.ReadAll(stdin)
		} else {
			text, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, err
		}
		found, err := metallb.ReadDocuments(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, found...)
	}
	return all, nil
}
