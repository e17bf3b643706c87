package lab

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDownAfterHalfAnUp takes down what an interrupted start leaves.
func TestDownAfterHalfAnUp(t *testing.T) {
	requireLab(t)
	t.Cleanup(func() {
		if err := Down(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("down: %v", err)
		}
	})
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		defer interrupt()
		procs := processes{records: c.state("processes")}
		// The nodes boot from then on.
		_ = until(ctx, "the API server to be started", func() error { _, err := procs.find("kube-apiserver"); return err })
	}()
	if _, err := Up(ctx, Options{Progress: t.Output()}); err == nil || ctx.Err() == nil {
		t.Fatalf("Up = %v, want that it was interrupted", err)
	}
	spaces := networkNamespaces(t)
	if err := Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkGone(t, spaces)
}

// checkGone fails the test if anything of a lab stays. A process that is killed is gone a
// moment later.
func checkGone(t *testing.T, spaces []string) {
	t.Helper()
	var lefts []string
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
		if lefts = leftBehind(t, spaces); len(lefts) == 0 {
			return
		}
	}
	for _, left := range lefts {
		t.Errorf("down left behind: %s", left)
	}
}

// networkNamespaces are the kernel's names of the lab's network namespaces.
func networkNamespaces(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, ns := range namespaces() {
		if _, err := os.Lstat(ns.path()); err != nil {
			continue
		}
		err := ns.do(func() error {
			name, err := os.Readlink("/proc/thread-self/ns/net")
			names = append(names, name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(names) == 0 {
		t.Fatal("no network namespace of the lab is there")
	}
	return names
}

// leftBehind names all that is there of a lab, and the processes that still
// run in its network namespaces.
func leftBehind(t *testing.T, spaces []string) []string {
	t.Helper()
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := findCgroups()
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{c.state(), runDir}
	for _, mount := range groups.mounts {
		dirs = append(dirs, filepath.Join(mount, namespacePrefix))
	}
	for _, ns := range namespaces() {
		dirs = append(dirs, ns.path())
	}
	left := slices.DeleteFunc(dirs, func(dir string) bool {
		_, err := os.Lstat(dir)
		return err != nil
	})
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, c.state()) || strings.Contains(line, namespacePrefix) {
			left = append(left, "mount "+line)
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if ns, err := os.Readlink(link); err == nil && slices.Contains(spaces, ns) {
			left = append(left, "process "+link)
		}
	}
	return left
}
