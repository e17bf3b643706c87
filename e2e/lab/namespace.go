package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// namespacePrefix begins the names of the lab's network namespaces and its
// part of the cgroup hierarchies.
const namespacePrefix = "fairlead-lab"

// namespace is a named network namespace, as "ip netns" shows it.
type namespace string

func namespaceOf(machine string) namespace { return namespace(namespacePrefix + "-" + machine) }

func (n namespace) path() string { return filepath.Join("/run/netns", string(n)) }

func (n namespace) open() (netns.NsHandle, error) {
	ns, err := netns.GetFromName(string(n))
	if err != nil {
		err = fmt.Errorf("network namespace %s: %w", n, err)
	}
	return ns, err
}

// do runs f on a thread that is in the namespace. Sockets that f opens and
// processes that it starts belong to the namespace; goroutines that it starts
// do not.
func (n namespace) do(f func() error) error {
	ns, err := n.open()
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	var failed error
	if err := netlab.Inside(ns, func() { failed = f() }); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", n, err)
	}
	return failed
}

// create makes the namespace with its loopback up.
func (n namespace) create() (err error) {
	netlab.InThread(func() {
		var ns netns.NsHandle
		if ns, err = netns.NewNamed(string(n)); err == nil {
			err = ns.Close()
		}
	})
	if err != nil {
		return fmt.Errorf("create network namespace %s: %w", n, err)
	}
	return n.links(func(h *netlink.Handle) error { return setUp(h, "lo") })
}

// remove deletes the namespace's name; no such name is no error. The namespace
// itself goes with its last process.
func (n namespace) remove() error {
	err := netns.DeleteNamed(string(n))
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EINVAL): // a name with nothing mounted on it
		return os.Remove(n.path())
	}
	return fmt.Errorf("remove network namespace %s: %w", n, err)
}

// links runs f with a netlink handle of the namespace.
func (n namespace) links(f func(*netlink.Handle) error) error {
	ns, err := n.open()
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", n, err)
	}
	defer h.Close()
	if err := f(h); err != nil {
		return fmt.Errorf("network namespace %s: %w", n, err)
	}
	return nil
}

// sysctl sets keys under /proc/sys/net, written with slashes.
func (n namespace) sysctl(value string, keys ...string) error {
	return n.do(func() error {
		for _, key := range keys {
			if err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0o644); err != nil {
				return fmt.Errorf("network namespace %s: %w", n, err)
			}
		}
		return nil
	})
}

func setUp(h *netlink.Handle, link string) error {
	l, err := h.LinkByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	return h.LinkSetUp(l)
}
