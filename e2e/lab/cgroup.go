package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroups are the hierarchies of this machine: one for each controller
// (version 1), or one for all (version 2).
type cgroups struct {
	mounts []string
	v2     bool
}

// findCgroups reads them from /proc/mounts. Where a machine has both versions
// the controllers are in the first.
func findCgroups() (cgroups, error) {
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return cgroups{}, err
	}
	var v1 []string
	v2 := false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch at, kind := fields[1], fields[2]; {
		case kind == "cgroup" && filepath.Dir(at) == cgroupRoot:
			v1 = append(v1, at)
		case kind == "cgroup2" && at == cgroupRoot:
			v2 = true
		}
	}
	switch {
	case len(v1) > 0:
		return cgroups{mounts: v1}, nil
	case v2:
		return cgroups{mounts: []string{cgroupRoot}, v2: true}, nil
	}
	return cgroups{}, errors.New("no cgroup hierarchy is mounted under " + cgroupRoot)
}

// create makes the cgroups of a machine of the lab. What is under test in the lab keeps to limits of time: all of the lab comes twenty times
// before what else wants a processor, as before tests that compile or simulate.
func (c cgroups) create(machine string) error {
	for _, mount := range c.mounts {
		lab := filepath.Join(mount, namespacePrefix)
		dir := filepath.Join(lab, machine)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		var err error
		switch {
		case c.v2:
			err = errors.Join(enableControllers(mount), enableControllers(lab))
		case filepath.Base(mount) == "cpuset":
			err = errors.Join(inheritCPUs(mount, lab), inheritCPUs(mount, dir))
		}
		if err := errors.Join(err, comeFirst(lab)); err != nil {
			return err
		}
	}
	return nil
}

// comeFirst gives a cgroup twenty times the usual weight, if it has that controller.
func comeFirst(dir string) error {
	for file, usual := range map[string]int{"cpu.shares": 1024, "cpu.weight": 100} { // of version 1, of version 2
		weight, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(weight, 20*usual)
		if err := errors.Join(err, weight.Close()); err != nil {
			return err
		}
	}
	return nil
}

// enableControllers lets the children of a version 2 cgroup have all of its
// controllers.
func enableControllers(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(controllers)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
		if err != nil {
			return fmt.Errorf("enable cgroup controller %s: %w", name, err)
		}
	}
	return nil
}

// inheritCPUs fills in what a new version 1 cpuset lacks before it can hold a
// process.
func inheritCPUs(from, to string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// joining gives a command that moves itself into a machine's cgroups and becomes
// the given one. In version 2 only a leaf may hold processes, so all but a
// node's first process join the leaf that the first has made.
func (c cgroups) joining(machine string, first bool, command ...string) []string {
	var script strings.Builder
	for _, mount := range c.mounts {
		dir := filepath.Join(mount, namespacePrefix, machine)
		if c.v2 && !first {
			dir = filepath.Join(dir, "init")
		}
		fmt.Fprintf(&script, "echo 0 >%s/cgroup.procs && ", dir) // 0 is the writer
	}
	script.WriteString(`exec "$@"`)
	return append([]string{"sh", "-c", script.String(), "sh"}, command...)
}

// remove removes the cgroups of a node, or the lab's with node "". Processes
// that have been killed leave them shortly after.
func (c cgroups) remove(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, mount := range c.mounts {
		dir := filepath.Join(mount, namespacePrefix, node)
		err := until(ctx, "the cgroup "+dir+" to be empty", func() error { return removeCgroup(dir) })
		if err != nil {
			return err
		}
	}
	return nil
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = os.Remove(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
