package command_test

import (
	"os/exec"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse"
)

// doubted tells whether the runner-up found that node of the nodes answers, "" for none.
func (l *lab) doubted(node string) func(pulse.State) bool {
	return func(s pulse.State) bool {
		d, is := s.Doubted[l.vip]
		return is && d.Owner == l.nodes[0].name && d.Node == node && d.Interface == "eth0"
	}
}

func sure(s pulse.State) bool { return len(s.Doubted) == 0 }

// A kernel that answers besides the owner, as where an interface has the address.
func TestTheRunnerUpHearsAnotherNodeAnswer(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3, patient...)
	third := l.nodes[2]
	third.Sysctl("ipv4/conf/all/arp_ignore", "0") // the address is on its loopback
	l.start(t)
	l.doubts(t, third.name)
	third.Sysctl("ipv4/conf/all/arp_ignore", "1")
	l.nodes[1].until("told that the third node does not answer any more", sure)
}

// A switch that drops what the owner says, which only others can notice.
func TestTheRunnerUpMissesTheOwnersAnswer(t *testing.T) { inBoth(t, missAnswers) }

func missAnswers(t *testing.T, p plan) {
	l := newLabOf(t, p, 3, patient...)
	owner := l.nodes[0]
	match := "ip6 saddr"
	if p.vip.Is4() {
		match = "arp saddr ip"
	}
	owner.nft(t, "table netdev switch { chain drops { type filter hook egress device eth0 priority 0; "+match+" "+p.vip.String()+" drop; }; }")
	l.start(t)
	l.doubts(t, "")
	owner.nft(t, "delete table netdev switch")
	l.nodes[1].until("told that the owner answers", sure)
}

// doubts waits until the runner-up, and nobody else, tells which node answers.
func (l *lab) doubts(t *testing.T, node string) {
	t.Helper()
	took := l.nodes[1].until("told who answers", l.doubted(node))
	t.Logf("told after %v", took.Round(time.Second))
	for i, n := range l.nodes {
		if s, _ := n.client.State(); i != 1 && !sure(s) {
			t.Errorf("%s, which is not the next candidate, tells of %+v", n.name, s.Doubted)
		}
	}
}

// nft runs a command of nft on the node.
func (n *node) nft(t *testing.T, command string) {
	t.Helper()
	if err := n.Do(func() error {
		out, err := exec.CommandContext(t.Context(), "nft", command).CombinedOutput()
		if len(out) > 0 {
			t.Logf("nft: %s", out)
		}
		return err
	}); err != nil {
		t.Fatalf("nft %s: %v", command, err)
	}
}
