// Package container starts the program of a test in containers, as containerd starts those of the chart, where the kernel enforces SELinux
// or AppArmor: e2e/kernels boots such, with Debian's runc and what confines containers in the folder /hardened.
package container

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Confinement is the SELinux label or the AppArmor profile of a container, and whether speakers can work under it.
type Confinement struct {
	Name  string
	Works bool

	label, profile string
	image          string
}

// Confinements has the kernel enforce what it was booted with, and returns what containers can run as, with the capability NET_ADMIN.
func Confinements(t *testing.T) []Confinement {
	t.Helper()
	image := copyImage(t)
	confinements := map[string][]Confinement{
		"selinux": {
			{Name: "container_t", label: "system_u:system_r:container_t:s0:c1,c2"},
			{Name: "spc_t", label: "system_u:system_r:spc_t:s0", Works: true},
		},
		"apparmor": {{Name: "cri-containerd.apparmor.d", profile: "cri-containerd.apparmor.d", Works: true}},
	}[shell(t, `/hardened/enforce "$1"`, image)]
	for i := range confinements {
		confinements[i].image = image
	}
	return confinements
}

// RunsAs is what the kernel tells a process of the container that it runs as.
func (c Confinement) RunsAs() string { return c.label + c.profile }

// Contain returns the command that runs another one, which is of this program, in a container with these capabilities and folders or files
// of the host, until ctx ends. The network is that of the thread which starts it. Its configuration is that which containerd makes of the chart's pods.
func (c Confinement) Contain(ctx context.Context, t *testing.T, command *exec.Cmd, capabilities, mounted []string) *exec.Cmd {
	t.Helper()
	type m = map[string]any
	mount := func(kind, to, from string, options ...string) m {
		return m{"type": kind, "destination": to, "source": from, "options": options}
	}
	mounts := []m{
		mount("proc", "/proc", "proc", "nosuid", "noexec", "nodev"),
		mount("tmpfs", "/dev", "tmpfs", "nosuid", "mode=755"),
		mount("sysfs", "/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
	}
	files := strings.Replace(c.label, "system_r:"+c.Name, "object_r:container_file_t", 1)
	for _, path := range mounted {
		if about, err := os.Stat(path); c.label != "" && err == nil && about.IsDir() {
			shell(t, `chcon -R "$1" "$2"`, files, path) // as a kubelet has it done to a pod's volumes
		}
		mounts = append(mounts, mount("bind", path, path, "rbind", "rprivate", "rw"))
	}
	text, err := json.Marshal(m{
		"ociVersion": "1.0.2", "root": m{"path": c.image, "readonly": true},
		"process": m{
			"args": append([]string{"/program"}, command.Args[1:]...), "cwd": "/", "user": m{"uid": 0, "gid": 0}, "noNewPrivileges": true,
			"env":          append(command.Env, "PATH=/usr/sbin:/usr/bin"),
			"capabilities": m{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
			"selinuxLabel": c.label, "apparmorProfile": c.profile,
		},
		"mounts": mounts,
		"linux": m{
			"namespaces":  []m{{"type": "pid"}, {"type": "ipc"}, {"type": "mount"}},
			"maskedPaths": []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"}, "mountLabel": files,
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	})
	bundle := t.TempDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(strings.Trim(bundle, "/"), "/", "-")
	return exec.CommandContext(ctx, "runc", "run", "--no-pivot", "--bundle", bundle, name)
}

// copyImage makes a root file system of what the image has, which are packages of this release of Debian, and of this program.
func copyImage(t *testing.T) (root string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	shell(t, `mount -t tmpfs image "$1" && cd "$1" && mkdir proc dev sys run tmp && : >run/xtables.lock && cp "$2" program &&
		for folder in usr bin sbin lib lib64 etc; do cp -a /$folder . ; done`, root, program)
	t.Cleanup(func() { shell(t, `umount -l "$1"`, root) })
	return root
}

// shell is what a script says.
func shell(t *testing.T, script string, args ...string) string {
	t.Helper()
	out, err := exec.Command("sh", append([]string{"-ec", script, "script"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}
