package selinux

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSELinuxIsNamed holds that an error for which SELinux may be the reason says so, with the chart's value, and no other one does:
// TestConfinedContainers has the kernel refuse.
func TestSELinuxIsNamed(t *testing.T) {
	said := errors.New("iptables-nft-save -t mangle: exit status 4: Could not fetch rule set generation id: Permission denied (you must be root)")
	const container = "system_u:system_r:container_t:s0:c1,c2"
	for _, c := range []struct {
		label string
		err   error
		named bool
	}{
		{container, fmt.Errorf("change nf_tables: %w", unix.EPERM), true},
		{container, fmt.Errorf("socket: %w", unix.EACCES), true},
		{container, said, true},
		{container, errors.New("no buffer space"), false},
		{container, nil, false},
		{"system_u:system_r:spc_t:s0", said, false},
		{"cri-containerd.apparmor.d (enforce)", said, false},
		{"", said, false},
	} {
		got := underLabel(c.label, c.err)
		if named := got != nil && strings.Contains(got.Error(), "as container_t") && strings.Contains(got.Error(), "selinux: true"); named != c.named || got != nil && !named {
			t.Errorf("%q, %v: %v, want SELinux to be named: %t", c.label, c.err, got, c.named)
		}
	}
}
