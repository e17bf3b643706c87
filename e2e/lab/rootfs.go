package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// basePackages are what the nodes' root file system, which the agnhost image
// stands on too, has beyond Debian's essential packages.
const basePackages = "ca-certificates,bash,curl,wget,iproute2,bind9-dnsutils,netcat-openbsd,iperf," +
	"iputils-ping,iputils-arping,procps,iptables,nftables,ipset,conntrack,runc,kmod,socat,ethtool," +
	"tcpdump,util-linux,mount"

// baseSteps make the root file system of this machine's own distribution and
// release, first as an archive, then unpacked for the nodes to overlay.
func baseSteps(c cache, parts []Part) ([]step, error) {
	codename, err := releaseCodename()
	if err != nil {
		return nil, err
	}
	stamp := hash(codename, basePackages)
	archive := c.image("base.tar")
	steps := []step{
		{name: "base.tar", output: archive, stamp: stamp, run: func(ctx context.Context) error {
			return debootstrap(ctx, codename, basePackages, archive)
		}},
		{name: "rootfs", output: c.image("rootfs"), stamp: stamp, run: func(ctx context.Context) error {
			return unpack(ctx, archive, c.image("rootfs"))
		}},
	}
	if wanted(FRRK8s, parts) {
		steps = append(steps, step{
			name: frrBase, output: c.image(frrBase), stamp: hash(codename, frrPackages),
			run: func(ctx context.Context) error { return debootstrap(ctx, codename, frrPackages, c.image(frrBase)) },
		})
	}
	return steps, nil
}

func debootstrap(ctx context.Context, codename, packages, archive string) error {
	sources, err := aptSources(codename)
	if err != nil {
		return err
	}
	args := []string{"--quiet", "--variant=essential", "--include=" + packages}
	for _, unwanted := range []string{"man", "locale", "doc"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+unwanted+"/*")
	}
	args = append(args, codename, archive)
	return runQuietly(exec.CommandContext(ctx, "mmdebstrap", append(args, sources...)...))
}

// unpack replaces dir with what the archive holds, but for device nodes.
func unpack(ctx context.Context, archive, dir string) error {
	half := dir + ".half"
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(half), os.Mkdir(half, 0o755)); err != nil {
		return err
	}
	if err := runQuietly(exec.CommandContext(ctx, "tar", "-C", half, "--exclude=./dev/*", "-xf", archive)); err != nil {
		return err
	}
	return os.Rename(half, dir)
}

// releaseCodename is this machine's release, for example bookworm.
func releaseCodename() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(name, `"`), nil
		}
	}
	return "", errors.New("/etc/os-release has no VERSION_CODENAME: the lab needs Debian or a relative of it")
}

// aptSources are this machine's own files that list archives of the release,
// so that a mirror or proxy configured here serves the lab too.
func aptSources(codename string) ([]string, error) {
	files, err := filepath.Glob("/etc/apt/sources.list.d/*")
	if err != nil {
		return nil, err
	}
	var sources []string
	for _, f := range append([]string{"/etc/apt/sources.list"}, files...) {
		text, err := os.ReadFile(f)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if listsRelease(string(text), codename) {
			sources = append(sources, f)
		}
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("no file in /etc/apt lists archives of %s", codename)
	}
	return sources, nil
}

// listsRelease tells whether a file of apt's, in either of its formats, has
// archives of the release.
func listsRelease(text, codename string) bool {
	suite := regexp.MustCompile(`(?m)^(Suites:|deb\s)(.*\s)?` + regexp.QuoteMeta(codename) + `(\s|$)`)
	return suite.MatchString(text)
}
