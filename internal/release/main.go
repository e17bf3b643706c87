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
       release -layout DIR publish REGISTRY
       release -key FILE public
       release -key FILE signature FILE
       release -key FILE -layout DIR -created TIME sign REGISTRY
with COSIGN_PASSWORD for a key that cosign has made`

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
	keyFile := flags.String("key", "", "a private key in PEM, of openssl or cosign")
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
	if *keyFile == "" {
		return errors.New(usage)
	}
	key, err := artifact.ReadKey(*keyFile, os.Getenv("COSIGN_PASSWORD"))
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "public":
		return printed(key.Public())
	case len(args) == 2 && args[0] == "signature":
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		signature, err := key.Sign(text)
		return printed([]byte(signature), err)
	case len(args) == 2 && args[0] == "sign":
		return artifact.Sign(ctx, *layout, args[1], *created, key)
	}
	return errors.New(usage)
}

func printed(text []byte, err error) error {
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	return err
}
