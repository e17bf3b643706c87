// Package selinux tells where SELinux is why the kernel refuses something: what the kernel and its programs say then names capabilities and
// files, and not SELinux.
package selinux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Blame returns an error, with what SELinux has to do with it before it where it tells of a lack of rights and this process has a label
// that may be the reason. It returns nil for no error.
func Blame(err error) error {
	label, unknown := os.ReadFile("/proc/thread-self/attr/current")
	if unknown != nil { // by a kernel without such modules
		return err
	}
	if why := underLabel(strings.TrimRight(string(label), "\x00\n"), err); why != nil {
		return errors.Join(why, err)
	}
	return err
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
