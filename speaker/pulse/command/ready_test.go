package command_test

import (
	"strings"
	"testing"
)

// TestANodeThatCannotListenIsNotReady: nodes that never heard it would believe Kubernetes that it
// answers, while it does not.
func TestANodeThatCannotListenIsNotReady(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.nodes[0]
	taken, err := n.ListenPacket("udp", ":7475")
	if err != nil {
		t.Fatal(err)
	}
	n.startPulse()
	n.startAgent()
	n.say(l.table(n))
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "UDP port"} {
		if got := get(t, n, path); !strings.Contains(got, want) {
			t.Errorf("%s said %q; want %q in it", path, got, want)
		}
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	n.until("owner", owns)
	if got := get(t, n, "/readyz"); got != "ok\n" {
		t.Errorf("/readyz said %q once the port was free", got)
	}
}
