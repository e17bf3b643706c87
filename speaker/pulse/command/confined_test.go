//go:build hardened

package command_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/container"
)

// TestConfinedPulses has two nodes run pulse in containers, as the chart asks for it, where the kernel enforces SELinux or AppArmor: they hear
// each other, answer for an address of each family, and one takes over from the other. The log names SELinux where it refuses something.
func TestConfinedPulses(t *testing.T) {
	all := container.Confinements(t)
	for name, p := range map[string]plan{"IPv4": ipv4, "IPv6": ipv6} {
		t.Run(name, func(t *testing.T) {
			for _, c := range all {
				t.Run(c.Name, func(t *testing.T) {
					l := newLabOf(t, p, 2)
					said := l.confine(t, c)
					if !c.Works {
						l.nodes[0].startPulse()
						for deadline := time.Now().Add(soon); !strings.Contains(said(), "SELinux runs the speaker as "+c.Name); time.Sleep(100 * time.Millisecond) {
							if time.Now().After(deadline) {
								t.Fatal("SELinux is not blamed")
							}
						}
						return
					}
					l.start(t)
					l.resolves(t, l.nodes[0])
					l.nodes[0].terminate()
					l.nodes[1].until("owner", owns)
					l.neighbour(t, l.nodes[1])
					if log := said(); strings.Contains(log, "not permitted") || strings.Contains(log, "denied") {
						t.Error("the kernel refuses something")
					}
				})
			}
		})
	}
}

// confine has each node run pulse in a container, and returns what returns what they logged.
func (l *lab) confine(t *testing.T, c container.Confinement) (said func() string) {
	t.Helper()
	var mu sync.Mutex
	var log strings.Builder
	for _, n := range l.nodes {
		run := filepath.Dir(n.socket)
		if err := os.MkdirAll(run, 0o700); err != nil {
			t.Fatal(err)
		}
		n.contain = func(command *exec.Cmd) *exec.Cmd {
			return c.Contain(t.Context(), t, command, []string{"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_NICE"}, []string{run})
		}
		n.reads = func(line string) {
			mu.Lock()
			defer mu.Unlock()
			log.WriteString(line + "\n")
		}
	}
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
}
