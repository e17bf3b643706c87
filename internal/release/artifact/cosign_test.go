//go:build cosign

package artifact_test

import (
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/release/artifact"
)

// cosign is far too large to be built for this, with 275 modules: the test is for machines that have it, by go test -tags cosign.
// Others have TestAllThatIsPublishedIsSigned.
func TestCosignAcceptsSignatures(t *testing.T) {
	program, err := exec.LookPath("cosign")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(cmd.Environ(), "COSIGN_PASSWORD="+password)
		out, err := cmd.CombinedOutput()
		t.Logf("cosign %v: %v\n%s", args, err, out)
		return string(out), err
	}
	pair := func(name string) string {
		prefix := filepath.Join(t.TempDir(), name)
		if _, err := run("generate-key-pair", "--output-key-prefix", prefix); err != nil {
			t.Fatal(err)
		}
		return prefix
	}
	ours, others := pair("ours"), pair("others")
	key, err := artifact.ReadKey(ours+".key", password)
	if err != nil {
		t.Fatal(err)
	}
	layout, host := release(t, "amd64", "arm64"), serve(t, nothing)
	if err := artifact.Sign(t.Context(), layout, host, created, key); err != nil {
		t.Fatal(err)
	}
	if err := artifact.Publish(t.Context(), layout, host, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	sums := filepath.Join(t.TempDir(), "SHA256SUMS")
	write(t, sums, []byte("0123  fairlead\n"))
	signature, err := key.Sign([]byte("0123  fairlead\n"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, sums+".sig", []byte(signature))
	public, err := key.Public()
	if err != nil {
		t.Fatal(err)
	}
	write(t, ours+".derived", public)
	for _, args := range [][]string{
		{"verify", "--allow-http-registry", host + "/fairlead:0.1.0"},
		{"verify", "--allow-http-registry", host + "/charts/fairlead:0.1.0"},
		{"verify-blob", "--signature", sums + ".sig", sums},
	} {
		with := func(key string) (string, error) {
			return run(slices.Insert(slices.Clone(args), 1, "--key", key, "--insecure-ignore-tlog")...)
		}
		for _, key := range []string{ours + ".pub", ours + ".derived"} {
			if _, err := with(key); err != nil {
				t.Errorf("cosign %v with %s: %v", args, key, err)
			}
		}
		if _, err := with(others + ".pub"); err == nil {
			t.Errorf("cosign %v takes the key of others", args)
		}
	}
}
