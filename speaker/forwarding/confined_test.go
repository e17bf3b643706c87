//go:build hardened

package forwarding

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/container"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

// confined tells this program the mode of forwarding of a container, which it is.
const confined = "FAIRLEAD_TEST_CONFINED"

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
	all := container.Confinements(t)
	for tool, mode := range map[string]Mode{"iptables-nft": IPTables, "iptables-legacy": IPTables, "nftables": NFTables} {
		t.Run(tool, func(t *testing.T) {
			l := newLab(t)
			if tool == "iptables-legacy" { // as a kubelet tells its variant
				l.node.Do(func() {
					for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
						if out, err := exec.Command(program, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT").CombinedOutput(); err != nil {
							t.Fatalf("%s: %v: %s", program, err, out)
						}
					}
				})
			}
			for _, c := range all {
				t.Run(c.Name, func(t *testing.T) {
					l.t = t
					l.try(c, tool, mode)
				})
			}
		})
	}
}

func (l *lab) try(c container.Confinement, tool string, mode Mode) {
	t := l.t
	ctx, cancel := context.WithTimeout(t.Context(), netlab.Patience(time.Minute))
	defer cancel()
	var said []byte
	var err error
	l.node.Do(func() {
		command := exec.CommandContext(ctx, os.Args[0])
		command.Env = []string{confined + "=" + string(mode)}
		said, err = c.Contain(ctx, t, command, []string{"CAP_NET_ADMIN", "CAP_NET_RAW"}, []string{"/run/xtables.lock"}).CombinedOutput()
	})
	out := string(said)
	t.Logf("%s", out)
	if !strings.Contains(out, "runs as "+c.RunsAs()) {
		t.Errorf("the container does not run as %s", c.Name)
	}
	if !c.Works {
		if err == nil || !strings.Contains(out, "SELinux runs the speaker as "+c.Name) || strings.Contains(out, "the kernel has not") {
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
