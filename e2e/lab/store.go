package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// baseImages are the archives of the images that every node has.
func baseImages() []string { return []string{"pause.tar", "coredns.tar", "agnhost.tar"} }

// storeName is, beside the archives, the directory that containerd keeps their images in, with all layers unpacked. A
// node begins with a copy of it: to import and to unpack some hundred megabytes takes seconds of a processor.
const storeName = "containerd"

// storeStep makes the store. The stamps are those of the steps before.
func storeStep(c cache, stamps map[string]string) step {
	inputs := []string{ContainerdVersion}
	for _, archive := range baseImages() {
		inputs = append(inputs, stamps[archive])
	}
	return step{
		name: "images for containerd", output: c.image(storeName), stamp: hash(inputs...),
		run: func(ctx context.Context) error { return fillStore(ctx, c) },
	}
}

// fillStore has a containerd of its own import the images.
func fillStore(ctx context.Context, c cache) error {
	store := c.image(storeName)
	half := store + ".half"
	run, err := os.MkdirTemp("", "containerd-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(run) }()
	socket, config := filepath.Join(run, "socket"), filepath.Join(run, "config.toml")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = [%q]\n[grpc]\naddress = %q\n", half, run, "io.containerd.grpc.v1.cri", socket)
	if err := errors.Join(os.RemoveAll(store), os.RemoveAll(half), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		return err
	}
	daemon := exec.CommandContext(ctx, c.bin("containerd"), "--config", config)
	daemon.Cancel = func() error { return daemon.Process.Signal(syscall.SIGTERM) }
	if err := daemon.Start(); err != nil {
		return err
	}
	err = importInto(ctx, c, socket)
	if err := errors.Join(err, daemon.Process.Signal(syscall.SIGTERM), daemon.Wait()); err != nil {
		return err
	}
	return os.Rename(half, store)
}

// importInto has the containerd at the socket, which may just have been started, import the images.
func importInto(ctx context.Context, c cache, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := Until(ctx, func() error { return listens(ctx, socket) }); err != nil {
		return fmt.Errorf("containerd does not answer: %w", err)
	}
	for _, archive := range baseImages() {
		if err := runQuietly(exec.CommandContext(ctx, c.bin("ctr"), "--address", socket, "--namespace", "k8s.io", "images", "import", c.image(archive))); err != nil {
			return err
		}
	}
	return nil
}

// listens returns nil once a program listens on the socket, and else an error.
func listens(ctx context.Context, socket string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// copyStore gives a node's containerd, which has not begun, the images. Nothing writes to a layer or a blob that is there: they are
// one file for all nodes. The databases are each node's own.
func (n *Node) copyStore(ctx context.Context) error {
	from, to := n.lab.dir.image(storeName), n.lab.dir.state(n.Name, "var", "lib", "containerd")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := runQuietly(exec.CommandContext(ctx, "cp", "--archive", "--link", from+"/.", to)); err != nil {
		return err
	}
	databases, err := filepath.Glob(filepath.Join(from, "*", "*.db"))
	if err != nil || len(databases) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no databases", from))
	}
	for _, database := range databases {
		own := filepath.Join(to, filepath.Base(filepath.Dir(database)))
		if err := runQuietly(exec.CommandContext(ctx, "cp", "--remove-destination", database, own)); err != nil {
			return err
		}
	}
	return nil
}
