//go:build hardened

package forwarding

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

// hardened is the folder where e2e/kernels has what confines containers, beside a runtime of such; confined tells this program the mode
// of forwarding of such a container, which it is.
const (
	hardened = "/hardened"
	confined = "FAIRLEAD_TEST_CONFINED"
)

// TestMain is also what runs in a container.
func TestMain(m *testing.M) {
	if mode := os.Getenv(confined); mode != "" {
		os.Exit(writeConfined(Mode(mode)))
	}
	netlab.LocksApart(m.Run)
}

// TestConfinedContainers has a container write the rules of each backend, started by Debian's runc as the chart asks for it, with the
// capabilities NET_ADMIN and NET_RAW alone, where the kernel enforces SELinux or AppArmor: e2e/kernels boots such.
func TestConfinedContainers(t *testing.T) {
	bundle := t.TempDir()
	copyImage(t, filepath.Join(bundle, "rootfs"))
	module := shell(t, hardened+`/enforce "$1"`, filepath.Join(bundle, "rootfs"))
	cases := map[string][]confinement{
		"selinux": {
			{name: "container_t", label: "system_u:system_r:container_t:s0:c1,c2"},
			{name: "spc_t", label: "system_u:system_r:spc_t:s0", works: true},
		},
		"apparmor": {{name: "cri-containerd.apparmor.d", profile: "cri-containerd.apparmor.d", works: true}},
	}[module]
	for tool, mode := range map[string]Mode{"iptables-nft": IPTables, "iptables-legacy": IPTables, "nftables": NFTables} {
		t.Run(tool, func(t *testing.T) {
			l := newLab(t)
			if tool == "iptables-legacy" {
				l.node.Do(func() { // as a kubelet tells its variant
					shell(t, "iptables-legacy -t mangle -N KUBE-IPTABLES-HINT && ip6tables-legacy -t mangle -N KUBE-IPTABLES-HINT")
				})
			}
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					l.t = t
					c.try(l, bundle, tool, mode)
				})
			}
		})
	}
}

// confinement is the SELinux label or the AppArmor profile of a container, and whether it can work so.
type confinement struct {
	name, label, profile string
	works                bool
}

func (c confinement) try(l *lab, bundle, tool string, mode Mode) {
	t := l.t
	out, err := c.run(t, bundle, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.node.FD()), mode)
	t.Logf("%s", out)
	if !strings.Contains(out, "runs as "+c.label+c.profile) {
		t.Errorf("the container does not run as %s", c.name)
	}
	if !c.works {
		if err == nil || !strings.Contains(out, "SELinux runs the speaker as "+c.name) || strings.Contains(out, "the kernel has not") {
			t.Errorf("the container: %v, want it to be refused, and to blame SELinux alone", err)
		}
		return
	}
	if err != nil || !strings.Contains(out, "wrote the rules by "+tool+"\n") {
		t.Fatalf("the container: %v, want it to work", err)
	}
	for _, f := range families() {
		flow := l.dial(netip.AddrPortFrom(f.vip, 53))
		if got, err := flow.Ask(); err != nil || got.Server != "e1" {
			t.Errorf("%s: %v, %v, want an answer of e1", f, got, err)
		}
		flow.Close()
	}
}

// run starts a container in a network namespace and waits for it. Its configuration is that which containerd makes of the chart's pods.
func (c confinement) run(t *testing.T, bundle, network string, mode Mode) (string, error) {
	t.Helper()
	type m = map[string]any
	capabilities := []string{"CAP_NET_ADMIN", "CAP_NET_RAW"}
	mount := func(kind, to, from string, options ...string) m {
		return m{"type": kind, "destination": to, "source": from, "options": options}
	}
	text, err := json.Marshal(m{
		"ociVersion": "1.0.2", "root": m{"path": "rootfs", "readonly": true},
		"process": m{
			"args": []string{"/speaker"}, "cwd": "/", "user": m{"uid": 0, "gid": 0}, "noNewPrivileges": true,
			"env":          []string{"PATH=/usr/sbin:/usr/bin", confined + "=" + string(mode)},
			"capabilities": m{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
			"selinuxLabel": c.label, "apparmorProfile": c.profile,
		},
		"mounts": []m{
			mount("proc", "/proc", "proc", "nosuid", "noexec", "nodev"),
			mount("tmpfs", "/dev", "tmpfs", "nosuid", "mode=755"),
			mount("sysfs", "/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
			mount("bind", "/run/xtables.lock", "/run/xtables.lock", "rbind", "rprivate", "rw"),
		},
		"linux": m{
			"namespaces":  []m{{"type": "pid"}, {"type": "ipc"}, {"type": "mount"}, {"type": "network", "path": network}},
			"maskedPaths": []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"}, "mountLabel": strings.Replace(c.label, "system_r:"+c.name, "object_r:container_file_t", 1),
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), netlab.Patience(time.Minute))
	defer cancel()
	out, err := exec.CommandContext(ctx, "runc", "run", "--no-pivot", "--bundle", bundle, "speaker").CombinedOutput()
	return string(out), err
}

// copyImage makes a root file system of what the image has, which are packages of this release of Debian, and of this program.
func copyImage(t *testing.T, root string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shell(t, `mkdir "$1" && mount -t tmpfs image "$1" && cd "$1" && mkdir proc dev sys run tmp && : >run/xtables.lock && cp "$2" speaker &&
		for folder in usr bin sbin lib lib64 etc; do cp -a /$folder . ; done`, root, program)
	t.Cleanup(func() { shell(t, `umount -l "$1"`, root) })
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

// writeConfined writes, in a container, the rules of a Service in each family, and returns the status to exit with.
func writeConfined(mode Mode) int {
	label, err := os.ReadFile("/proc/self/attr/current")
	fmt.Printf("runs as %s, %v\n", strings.TrimRight(string(label), "\x00\n"), err)
	f, err := New(Config{Mode: mode, Log: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	for _, family := range families() {
		more := family.want(family.vip, 30053, "e1")
		maps.Copy(want.Ports, more.Ports)
		want.NodePorts = append(want.NodePorts, more.NodePorts...)
	}
	missing, err := f.Apply(context.Background(), want)
	if err != nil || len(missing) > 0 {
		fmt.Printf("%d ports are missing: %v\n", len(missing), err)
		return 1
	}
	fmt.Println("wrote the rules by", f.Tool())
	return 0
}
