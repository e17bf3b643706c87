// Package netlab builds small networks of Linux network namespaces for tests:
// hosts joined by veth pairs, echo servers that say their name and the address that they
// see, and clients that tell an answer from a refusal and from silence.
package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is one network namespace. It has no name in the file system and vanishes
// with the test and the sockets that were opened in it.
type Host struct {
	Name  string
	t     testing.TB
	ns    netns.NsHandle
	flows atomic.Uint32 // that were dialed
}

// NewHost makes a namespace with nothing but a loopback interface that is up.
// Without the privilege to do so it skips the test, naming what is missing.
func NewHost(t testing.TB, name string) *Host {
	t.Helper()
	h := &Host{Name: name, t: t}
	var err error
	InThread(func() {
		h.ns, err = netns.New()
	})
	if errors.Is(err, unix.EPERM) {
		t.Skip("network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root")
	}
	if err != nil {
		t.Fatalf("make the network namespace of %s: %v", name, err)
	}
	t.Cleanup(func() { _ = h.ns.Close() })
	t.Cleanup(func() { h.Do(func() { KeepState(t, name) }) })
	h.Do(func() {
		h.up("lo")
		h.Sysctl("net/ipv6/conf/all/accept_dad", "0")
		h.Sysctl("net/ipv6/conf/default/accept_dad", "0")
	})
	return h
}

// InThread runs f on a thread of its own that ends with it, so that f may move
// the thread to another namespace.
func InThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()              // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() { // but for the main thread, which would stay where f moves it
			defer runtime.UnlockOSThread()
			InThread(f)
			return
		}
		f()
	}()
	<-done
}

// Inside runs f, and all processes and sockets that it starts, in a namespace. f must not call
// t.FailNow, nor leave work to other goroutines. An error says that f did not run.
func Inside(ns netns.NsHandle, f func()) (err error) {
	InThread(func() {
		if err = netns.Set(ns); err == nil {
			f()
		}
	})
	return err
}

// Do is Inside for the namespace of the host.
func (h *Host) Do(f func()) {
	h.t.Helper()
	if err := Inside(h.ns, f); err != nil {
		h.t.Errorf("enter the network namespace of %s: %v", h.Name, err)
	}
}

// FD is the file descriptor of the namespace. It is open as long as the test runs.
func (h *Host) FD() int { return int(h.ns) }

// check ends f of Do with a note on what failed.
func (h *Host) check(err error, format string, args ...any) {
	if err != nil {
		h.t.Errorf("%s: %s: %v", h.Name, fmt.Sprintf(format, args...), err)
	}
}

// link is an interface; nil, and noted, if there is none.
func (h *Host) link(name string) netlink.Link {
	link, err := netlink.LinkByName(name)
	if err != nil {
		h.check(err, "find interface %s", name)
		return nil
	}
	return link
}

func (h *Host) up(name string) {
	if link := h.link(name); link != nil {
		h.check(netlink.LinkSetUp(link), "set %s up", name)
	}
}

// Sysctl writes a value below /proc/sys of the host's network. Call it in Do.
func (h *Host) Sysctl(name, value string) {
	if strings.HasPrefix(name, "net/ipv6/") && !HasIPv6() {
		return
	}
	h.check(os.WriteFile("/proc/sys/"+name, []byte(value), 0o600), "set %s", name)
}

// Forward makes the host a router of both families that sends no redirects.
func (h *Host) Forward() {
	h.Do(func() {
		h.Sysctl("net/ipv4/ip_forward", "1")
		h.Sysctl("net/ipv6/conf/all/forwarding", "1")
		h.Sysctl("net/ipv4/conf/all/send_redirects", "0")
		h.Sysctl("net/ipv4/conf/default/send_redirects", "0")
	})
}

// Connect joins two hosts by a cable and waits until it carries frames: the kernel takes
// up to a second to notice that it does, and drops them before.
func Connect(a *Host, nameA string, b *Host, nameB string) {
	a.Do(func() {
		a.check(netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(b.FD()),
		}), "add veth %s to %s", nameA, b.Name)
		a.up(nameA)
	})
	b.Do(func() { b.up(nameB) })
	a.AwaitCarrier(nameA)
	b.AwaitCarrier(nameB)
}

// AwaitCarrier waits until an interface carries frames.
func (h *Host) AwaitCarrier(name string) {
	const patience = time.Minute
	h.Do(func() {
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			link, err := netlink.LinkByName(name)
			if err == nil && link.Attrs().OperState == netlink.OperUp {
				return
			}
			if time.Since(began) > patience {
				h.t.Errorf("%s: %s has no carrier after %s: %v", h.Name, name, patience, err)
				return
			}
		}
	})
}

// Addr gives addresses to an interface, which work when it returns if the interface is up.
func (h *Host) Addr(name string, prefixes ...string) {
	h.Do(func() {
		link := h.link(name)
		if link == nil {
			return
		}
		for _, prefix := range prefixes {
			a, err := netlink.ParseAddr(prefix)
			if err != nil {
				h.check(err, "address %s", prefix)
				continue
			}
			if a.IP.To4() == nil && !HasIPv6() {
				continue
			}
			a.Flags = unix.IFA_F_NODAD
			h.check(netlink.AddrAdd(link, a), "add %s to %s", prefix, name)
		}
		for h.isTentative(link.Attrs().Index) {
			time.Sleep(time.Millisecond)
		}
	})
}

// HasIPv6 reports whether this kernel has IPv6, which one booted with ipv6.disable=1 has not: there, hosts get no settings,
// addresses and routes of it.
func HasIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil
}

// isTentative tells whether an address of an interface that is up is not used yet: without duplicate address detection,
// too, a worker of the kernel has to come round to it, which takes seconds on a busy machine.
func (h *Host) isTentative(index int) bool {
	link, err := netlink.LinkByIndex(index)
	if err != nil || link.Attrs().RawFlags&unix.IFF_RUNNING == 0 {
		return false
	}
	all, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return true // they change just now
	}
	h.check(err, "list the addresses of %s", link.Attrs().Name)
	return slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 })
}

// Route sends packets for a prefix out of an interface, by way of a neighbour if via is not "".
func (h *Host) Route(prefix, via, name string) {
	h.Do(func() {
		link := h.link(name)
		if link == nil {
			return
		}
		dst, err := netlink.ParseIPNet(prefix)
		if err != nil {
			h.check(err, "route to %s", prefix)
			return
		}
		if dst.IP.To4() == nil && !HasIPv6() {
			return
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst}
		if via != "" {
			route.Gw = netip.MustParseAddr(via).AsSlice()
			route.Flags = int(netlink.FLAG_ONLINK)
		} else {
			route.Scope = netlink.SCOPE_LINK
		}
		h.check(netlink.RouteAdd(route), "add route to %s", prefix)
	})
}

// Own makes all addresses of a prefix the host's own, so that it may send from them.
func (h *Host) Own(prefix netip.Prefix) {
	h.Do(func() {
		h.Sysctl("net/ipv6/ip_nonlocal_bind", "1") // IPv6 takes its routes for no reason to let one bind
		lo := h.link("lo")
		if lo == nil {
			return
		}
		h.check(netlink.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
			Dst: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
		}), "own %s", prefix)
	})
}

// State is a shell script that prints what a network namespace has: addresses, routes,
// neighbours, rules, flows and sockets.
const State = `for command in "ip -s address" "ip route show table all" "ip -6 route show table all" "ip neighbour" \
	"nft list ruleset" iptables-nft-save ip6tables-nft-save iptables-legacy-save ip6tables-legacy-save \
	"ipset list" "conntrack -L" "ss -anp"; do
	echo "# $command"
	$command 2>&1
done`

// KeepState keeps the state of the present namespace with what the test has to say, if it has
// failed. It is for a test's cleanup, while the namespace is as it was. Without go test -artifacts
// the folder for it may be gone by then, and nothing is kept.
func KeepState(t testing.TB, name string) {
	if !t.Failed() {
		return
	}
	text, _ := exec.Command("sh", "-c", State).CombinedOutput() // fails with its last command, and is kept all the same
	file, err := os.CreateTemp(t.ArtifactDir(), name+"-*.txt")
	if err == nil {
		_, err = file.Write(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Log(err)
	}
}
