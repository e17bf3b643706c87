package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// Keep has a test keep, if it fails, what there is to know of the lab then: the state of each
// machine's network and the logs of all processes and pods. It is to be called after that which
// has the test take the lab down.
func Keep(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if err := keep(t.ArtifactDir()); err != nil {
			t.Logf("not all of the lab is kept: %v", err)
		}
	})
}

func keep(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := Open()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range l.Machines() {
		state, err := m.Exec(ctx, "sh", "-c", netlab.State)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, m.Name+".txt"), []byte(state), 0o644))
	}
	errs = append(errs, os.CopyFS(filepath.Join(dir, "log"), os.DirFS(l.procs.logs)))
	for _, n := range l.nodes {
		errs = append(errs, os.CopyFS(filepath.Join(dir, "pods", n.Name), os.DirFS(l.dir.state(n.Name, "var/log/pods"))))
	}
	log, err := os.ReadFile(l.Router.file("frr.log"))
	return errors.Join(append(errs, err, os.WriteFile(filepath.Join(dir, "frr.log"), log, 0o644))...)
}
