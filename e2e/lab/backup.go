package lab

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// Backup saves what etcd has now, and returns what brings it back. For both the API server is away for some seconds; after a restore the
// controllers of Kubernetes start anew, as its documentation asks for. An error says what keeps it from being back.
func (l *Lab) Backup(ctx context.Context) (restore func(context.Context) error, err error) {
	data, saved := l.dir.state("etcd"), l.dir.state("etcd-saved")
	err = l.withoutAPI(ctx, func() error { return errors.Join(os.RemoveAll(saved), os.CopyFS(saved, os.DirFS(data))) })
	return func(ctx context.Context) error {
		if err := l.procs.stop(ctx, syscall.SIGTERM, "kube-controller-manager", "kube-scheduler"); err != nil {
			return err
		}
		err := l.withoutAPI(ctx, func() error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(saved))) })
		return errors.Join(err, l.startControllers(ctx))
	}, err
}

// withoutAPI does something while neither the API server nor etcd runs.
func (l *Lab) withoutAPI(ctx context.Context, do func() error) error {
	for _, name := range []string{"kube-apiserver", "etcd"} {
		// The server would wait a minute for watches to end.
		if err := l.procs.stop(ctx, syscall.SIGKILL, name); err != nil {
			return err
		}
	}
	return errors.Join(do(), l.startAPI(ctx), l.waitForAPI(ctx))
}
