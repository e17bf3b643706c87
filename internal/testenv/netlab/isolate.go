package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isolated tells that this process has a network namespace of its own.
const isolated = "FAIRLEAD_TEST_ISOLATED"

// Isolated is for a TestMain: it runs the tests in a network namespace of their own
// where it may, so that they meet no daemons of the host and leave nothing behind, and exits
// with what run returns.
func Isolated(run func() int) {
	if IsIsolated() {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, "loopback:", err)
			os.Exit(1)
		}
		os.Exit(run())
	}
	if os.Geteuid() != 0 {
		os.Exit(run())
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), isolated+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	signal.Ignore(os.Interrupt)
	err := again.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case errors.Is(err, unix.EPERM):
		os.Exit(run()) // root without CAP_SYS_ADMIN
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// IsIsolated reports whether these tests have a network namespace of their own.
func IsIsolated() bool { return os.Getenv(isolated) != "" }

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// LocksApart is for a TestMain: it runs the tests with a lock of legacy iptables for each
// host, as each node has one, so that they do not wait for others on this machine, and exits with
// what run returns.
func LocksApart(run func() int) {
	if err := os.Setenv("XTABLES_LOCKFILE", "/proc/thread-self/ns/net"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run())
}

// emulated tells that the processor is emulated, as e2e/kernels has it.
const emulated = "FAIRLEAD_TEST_EMULATED"

// Emulated reports whether the processor is emulated, in a kernel that has what the host's may lack.
func Emulated() bool { return os.Getenv(emulated) != "" }

// Patience returns the time itself, and ten times as long on an emulated processor.
func Patience(t time.Duration) time.Duration {
	if Emulated() {
		return 10 * t
	}
	return t
}
