package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Requirement is one thing that a lab needs of this machine.
type Requirement struct {
	Name    string
	Package string // Debian's package that has it; "" if none does
	Err     error  // what is wrong, and what to do; nil if it is met
}

// Requirements checks all that a lab needs of this machine.
func Requirements() []Requirement {
	all := []Requirement{
		{Name: "Linux", Err: unless(runtime.GOOS == "linux", "this is "+runtime.GOOS+": use a virtual machine")},
		{Name: "root", Err: unless(os.Geteuid() == 0, "run it as root, for example with sudo -E")},
		{Name: "go", Err: findProgram("go", "install Go from https://go.dev/dl")},
	}
	for _, p := range []struct{ program, pkg string }{
		{"mmdebstrap", "mmdebstrap"},
		{"bash", "bash"},
		{"tar", "tar"},
		{"awk", "mawk"},
		{"nsenter", "util-linux"},
		{"unshare", "util-linux"},
		{"mount", "mount"},
		{"nft", "nftables"},
		{"ip", "iproute2"},
		{"arping", "arping"},
		{"tcpdump", "tcpdump"},
		{filepath.Join(frrDir, "bgpd"), "frr"},
		{"vtysh", "frr"},
	} {
		hint := "apt-get install --no-install-recommends " + p.pkg
		all = append(all, Requirement{Name: p.program, Package: p.pkg, Err: findProgram(p.program, hint)})
	}
	_, err := findCgroups()
	return append(
		all,
		Requirement{Name: "cgroups", Err: err},
		Requirement{Name: "overlay file systems", Err: findOverlay()},
		Requirement{Name: "bridge netfilter", Err: findBridgeNetfilter()},
		Requirement{Name: "a cache on a disk", Err: findDisk()},
	)
}

// Missing gives an error for each requirement that is not met.
func Missing() []error {
	var missing []error
	for _, r := range Requirements() {
		if r.Err != nil {
			missing = append(missing, fmt.Errorf("the lab needs %s: %w", r.Name, r.Err))
		}
	}
	return missing
}

func unless(met bool, otherwise string) error {
	if met {
		return nil
	}
	return errors.New(otherwise)
}

func findProgram(name, hint string) error {
	_, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%w: %s", err, hint)
	}
	return nil
}

func findOverlay() error {
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	return unless(strings.Contains(string(text), "\toverlay\n"), "the kernel has no overlay file system: modprobe overlay")
}

func findBridgeNetfilter() error {
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	return unless(!errors.Is(err, fs.ErrNotExist), "the kernel has no bridge netfilter: modprobe br_netfilter")
}

// findDisk checks the file system of the cache: one overlay cannot carry the
// writable layer of another.
func findDisk() error {
	c, err := openCache()
	if err != nil {
		return err
	}
	dir := string(c)
	for {
		var stat unix.Statfs_t
		err := unix.Statfs(dir, &stat)
		if errors.Is(err, unix.ENOENT) {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		return unless(stat.Type != unix.OVERLAYFS_SUPER_MAGIC,
			dir+" is on an overlay file system: set FAIRLEAD_CACHE to a directory on a disk")
	}
}
