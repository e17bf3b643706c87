package foreignproxy

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// TestPreempting finds what acts before rules: Calico's proxy by its interface, which is there with no port to try, and Cilium's
// by what it does, not by its interface.
func TestPreempting(t *testing.T) {
	h := netlab.NewHost(t, "node")
	service := netip.MustParseAddrPort("10.96.0.20:53")
	expect := func(port netip.AddrPort, want string) {
		t.Helper()
		h.Do(func() {
			if got, err := Preempting(port); got != want || err != nil {
				t.Errorf("found %q, error %v; want %q", got, err, want)
			}
		})
	}
	run(t, h, "ip link add cilium_host type veth peer name in")
	run(t, h, "ip link set in up")
	run(t, h, "ip address add 192.0.2.1/24 dev cilium_host")
	run(t, h, "ip link set cilium_host up")
	run(t, h, "ip route add default dev cilium_host")
	expect(service, "")
	detach := redirect(t, service.Addr(), netip.MustParseAddr("10.244.1.3"), unix.BPF_CGROUP_INET4_CONNECT, 4)
	defer detach()
	expect(service, "Cilium (interface cilium_host)")
	expect(netip.AddrPort{}, "")
	run(t, h, "ip link set cilium_host name cilium_net")
	expect(service, "a program at sockets")
	run(t, h, "ip link add bpfin.cali type bridge")
	expect(netip.AddrPort{}, "Calico in eBPF mode (interface bpfin.cali)")
}

// TestAtSockets has a program of eBPF send elsewhere what processes send to the port of a Service, as Cilium's
// proxy does: this one, and not another address; nor while it is not there.
func TestAtSockets(t *testing.T) {
	for _, test := range []struct {
		name                    string
		service, other, backend netip.AddrPort
		attach, offset          int
	}{
		// The last word of the address in struct bpf_sock_addr.
		{"IPv4", netip.MustParseAddrPort("10.96.0.10:53"), netip.MustParseAddrPort("10.96.0.11:53"), netip.MustParseAddrPort("10.244.1.2:53"), unix.BPF_CGROUP_INET4_CONNECT, 4},
		{"IPv6", netip.MustParseAddrPort("[fd00:96::a]:53"), netip.MustParseAddrPort("[fd00:96::b]:53"), netip.MustParseAddrPort("[fd00:96::2]:53"), unix.BPF_CGROUP_INET6_CONNECT, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := netlab.NewHost(t, "node")
			expect := func(service netip.AddrPort, want bool) {
				t.Helper()
				h.Do(func() {
					if got, err := AtSockets(service); got != want || err != nil {
						t.Errorf("to %s is sent elsewhere: %t, error %v; want %t", service, got, err, want)
					}
				})
			}
			expect(test.service, false) // no route
			run(t, h, "ip link add out type veth peer name in")
			run(t, h, "ip link set in up")
			run(t, h, "ip link set out up")
			run(t, h, "ip address add 192.0.2.1/24 dev out")
			run(t, h, "ip route add default dev out")
			run(t, h, "ip -6 address add fd00:1::1/64 dev out nodad")
			run(t, h, "ip -6 route add default dev out")
			expect(test.service, false)
			detach := redirect(t, test.service.Addr(), test.backend.Addr(), test.attach, test.offset)
			expect(test.service, true)
			expect(test.other, false)
			detach()
			expect(test.service, false)
		})
	}
}

// redirect has the kernel change a word of the address that processes of this one's cgroup connect to.
func redirect(t *testing.T, from, to netip.Addr, attach, offset int) (detach func()) {
	t.Helper()
	group := filepath.Join(unified(t), "fairlead-"+strconv.Itoa(os.Getpid()))
	move := func(to string) error {
		return os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600)
	}
	all, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, home, _ := strings.Cut("\n"+string(all), "\n0::")
	home, _, _ = strings.Cut(home, "\n")
	if err := errors.Join(os.Mkdir(group, 0o700), move(group)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(move(filepath.Join(filepath.Dir(group), home)), os.Remove(group)); err != nil {
			t.Error(err)
		}
	})
	word := func(a netip.Addr) int32 {
		all := a.AsSlice()
		return int32(binary.NativeEndian.Uint32(all[len(all)-4:]))
	}
	type instruction struct {
		code, registers uint8
		offset          int16
		constant        int32
	}
	program := []instruction{
		{0x61, 0x12, int16(offset), 0}, // r2 = address
		{0x56, 0x02, 2, word(from)},    // if it is another one, skip two
		{0xb4, 0x02, 0, word(to)},      // r2 = backend
		{0x63, 0x21, int16(offset), 0}, // address = r2
		{0xb7, 0x00, 0, 1},             // admit
		{0x95, 0x00, 0, 0},
	}
	license := []byte("GPL\x00")
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&program[0])
	pinned.Pin(&license[0])
	load := struct {
		kind, count      uint32
		program, license uint64
		level, size      uint32
		log              uint64
		version, flags   uint32
		name             [16]byte
		ifindex, attach  uint32
		rest             [64]byte
	}{
		kind: unix.BPF_PROG_TYPE_CGROUP_SOCK_ADDR, count: uint32(len(program)), attach: uint32(attach),
		program: uint64(uintptr(unsafe.Pointer(&program[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	loaded, _, failed := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	if failed != 0 {
		t.Fatal("load: ", failed)
	}
	dir, err := unix.Open(group, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	where := struct{ group, program, kind, flags uint32 }{uint32(dir), uint32(loaded), uint32(attach), 0}
	call := func(command uintptr) {
		t.Helper()
		if _, _, failed := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&where)), unsafe.Sizeof(where)); failed != 0 {
			t.Fatal(failed)
		}
	}
	call(unix.BPF_PROG_ATTACH)
	return func() {
		call(unix.BPF_PROG_DETACH)
		if err := errors.Join(unix.Close(dir), unix.Close(int(loaded))); err != nil {
			t.Error(err)
		}
	}
}

// unified is a mount of the hierarchy of cgroups, version 2.
func unified(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
