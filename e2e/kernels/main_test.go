package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/kernels/results"
)

// TestOneKernel boots one kernel that is not the host's, and runs there one test of packets in one backend: Services of each kind,
// those with source ranges among them, asked over TCP and UDP in both families. The other kernels and tests have make test-kernels.
func TestOneKernel(t *testing.T) {
	o := options{
		releases: "bookworm", processors: "max", suite: "./speaker/forwarding/blackbox", run: "^TestMarksOfOthersStay$/^nftables$",
		cache: os.Getenv("FAIRLEAD_CACHE"), patience: 15 * time.Minute,
	}
	if o.cache == "" || os.Geteuid() != 0 {
		t.Skip("what is booted is made by root in FAIRLEAD_CACHE: run make test")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("%v: run make emulator", err)
	}
	t.Chdir("../..") // where the packages are named from
	runs, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := runs[0].Count("nftables", backends()), (results.Count{Passed: 1}); got != want {
		t.Errorf("the kernel passes %+v, want %+v", got, want)
	}
}
