package forwarding

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// bySELinux returns what SELinux has to do with errors that tell of a lack of rights, nil if it has nothing. The kernel and its programs
// name capabilities and files then, and not SELinux.
func bySELinux(err error) error {
	label, unknown := os.ReadFile("/proc/thread-self/attr/current")
	if unknown != nil { // by a kernel without such modules
		return nil
	}
	return underLabel(strings.TrimRight(string(label), "\x00\n"), err)
}

func underLabel(label string, err error) error {
	parts := strings.Split(label, ":") // user, role, type and level; AppArmor has one
	if err == nil || len(parts) < 4 || parts[2] == "spc_t" {
		return nil
	}
	if text := err.Error(); !errors.Is(err, fs.ErrPermission) &&
		!strings.Contains(text, "Permission denied") && !strings.Contains(text, "Operation not permitted") {
		return nil
	}
	return fmt.Errorf("SELinux runs the speaker as %s, which may not change the rules of this node: install the chart with selinux: true, so that it runs as spc_t", parts[2])
}
