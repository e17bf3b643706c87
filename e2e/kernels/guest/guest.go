// Package guest boots kernels of Debian releases, each with its release's own programs, in an emulated machine, and
// runs test binaries in them.
package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // of the script
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Release is a kernel with the programs around it.
type Release struct {
	Name   string
	Arch   string   // of Debian and of Go
	Kernel string   // its package, as apt-get takes it
	Apt    []string // the suite, and further sources
}

// Releases are those that there are.
func Releases() []Release {
	// As they were released: what was mended since then is not on every host.
	const archive = "deb http://deb.debian.org/debian "
	return []Release{
		{"bullseye", "amd64", "linux-image-amd64", []string{"bullseye", archive + "bullseye main"}},
		{"bookworm", "amd64", "linux-image-amd64", []string{"bookworm", archive + "bookworm main"}},
		{"bookworm-backports", "amd64", "linux-image-amd64/bookworm-backports", []string{"bookworm", archive + "bookworm main", archive + "bookworm-backports main"}},
		// Pages of 16 KiB, as Asahi Linux and the Raspberry Pi 5 have them.
		{"trixie-16k", "arm64", "linux-image-arm64-16k", []string{"trixie", archive + "trixie main"}},
	}
}

// Ended begins the line that has the status of the tests.
const Ended = "=== EXIT "

//go:embed make-initrd
var makeInitrd string

//go:embed make-hardening
var makeHardening string

// Guest is a release that is ready to boot.
type Guest struct {
	Release
	dir       string
	hardening string // a folder with another initial RAM disk; empty: none
}

// Prepare makes what a release boots from, once, in a folder of the cache. The error is of the script that makes it, as where
// Debian's archive does not have the packages.
func Prepare(ctx context.Context, r Release, cache string) (g Guest, err error) {
	g.Release = r
	g.dir, err = made(ctx, filepath.Join(cache, "kernels", r.Name), makeInitrd, append([]string{r.Arch, r.Kernel}, r.Apt...)...)
	return g, err
}

// Hardened is the guest, with a container runtime, what loads its profile of AppArmor, and a policy for SELinux in the folder hardened. The
// error is of the script that makes it, once.
func (g Guest) Hardened(ctx context.Context, cache string) (_ Guest, err error) {
	g.hardening, err = made(ctx, filepath.Join(cache, "kernels", "hardening"), makeHardening)
	return g, err
}

// made is the folder that a script makes, where it is not there yet.
func made(ctx context.Context, name, script string, args ...string) (dir string, err error) {
	digest := sha256.Sum256([]byte(script + strings.Join(args, "\n")))
	dir = fmt.Sprintf("%s-%x", name, digest[:4])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	half := dir + ".half"
	if err := errors.Join(os.RemoveAll(half), os.MkdirAll(half, 0o755)); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "bash", append([]string{"-c", script, "make", half}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make %s to boot from: %w: %s", filepath.Base(dir), err, out)
	}
	return dir, os.Rename(half, dir)
}

// Version is the version of the kernel, and the settings of its configuration, by names without CONFIG_. The error is of
// reading that.
func (g Guest) Version() (version string, settings map[string]string, err error) {
	text, err := os.ReadFile(filepath.Join(g.dir, "config"))
	settings = map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, value, set := strings.Cut(strings.TrimPrefix(line, "CONFIG_"), "="); set {
			settings[name] = value
		}
		if _, after, found := strings.Cut(line, "# Linux/"); found {
			version = strings.Fields(after)[1] // after the architecture
		}
	}
	return version, settings, err
}

// Run boots the kernel on an emulated processor, with further arguments if boot is not empty, runs a script there beside these files, and writes what it says to out.
// An error says that the script did not come to its end, or with a status other than zero.
func (g Guest) Run(ctx context.Context, processor, boot, script string, files []string, out io.Writer) error {
	work, err := os.MkdirTemp("", "kernels-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	initrd := filepath.Join(work, "initrd")
	if err := g.withTests(ctx, work, initrd, script, files); err != nil {
		return err
	}
	var console bytes.Buffer
	emulator, machine, terminal := "qemu-system-x86_64", "pc", "ttyS0"
	if g.Arch == "arm64" {
		emulator, machine, terminal = "qemu-system-aarch64", "virt", "ttyAMA0"
	}
	// One processor: emulation takes one of the host's for each.
	c := exec.CommandContext(ctx, emulator, "-accel", "tcg", "-machine", machine, "-cpu", processor, "-smp", "1", "-m", "3072",
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", filepath.Join(g.dir, "vmlinuz"), "-initrd", initrd,
		// On a busy machine the emulated timer is too late for the kernel's check of it, and the kernel panics.
		"-append", "console="+terminal+" loglevel=1 panic=-1 mitigations=off no_timer_check "+boot)
	c.Stdout, c.Stderr = io.MultiWriter(out, &console), out
	if err := c.Run(); err != nil {
		return fmt.Errorf("emulate %s with -cpu %s: %w", g.Name, processor, err)
	}
	_, status, ended := strings.Cut(console.String(), Ended)
	status, _, _ = strings.Cut(status, "\n") // the kernel says more when it ends
	if status = strings.TrimSpace(status); !ended || status != "0" {
		return fmt.Errorf("%s with -cpu %s: the tests end with status %q", g.Name, processor, status)
	}
	return nil
}

// withTests writes an initial RAM disk that has the script and the files in the folder tests, too: such archives follow one another.
func (g Guest) withTests(ctx context.Context, work, initrd, script string, files []string) error {
	tests := filepath.Join(work, "tests")
	if err := os.Mkdir(tests, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tests, "run"), []byte(script), 0o600); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "sh", append([]string{"-ec", `initrd=$1 work=$2 base=$3 more=$4; shift 4; cp "$@" "$work/tests/"; cat "$base" ${more:+"$more/initrd"} >"$initrd"
		cd "$work"; find tests | cpio --create --format=newc --quiet >>"$initrd"`, "add-tests", initrd, work, filepath.Join(g.dir, "initrd"), g.hardening}, files...)...)
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("add the tests to %s: %w: %s", g.Name, err, text)
	}
	return nil
}
