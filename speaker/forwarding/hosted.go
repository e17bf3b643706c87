package forwarding

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// hosted is a backend that tells a family that its host has not at all from one that fails.
// It asks anew each time that a family fails, so that one that comes is one that counts.
type hosted struct {
	Backend
	host host
}

// Apply implements Backend.
func (h hosted) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	missing, err := h.Backend.Apply(ctx, want)
	for _, failed := range outcome.AllOf[*outcome.FamilyError](err) { // which are of this attempt alone
		if failed.Settled {
			continue
		}
		if why := h.host.lacks(failed.Family, failed.Err); why != nil {
			failed.Err = errors.Join(outcome.Caused(outcome.ReasonFamilyAbsent, why), failed.Err)
		}
	}
	return missing, err
}

// host is what is asked of this host.
type host struct {
	socket    func(addr.Family) error             // opens one
	listed    func(addr.Family) (bool, error)     // whether the kernel has a list of addresses of a family
	addresses func() (map[netip.Addr]bool, error) // the host's
}

func thisHost() host { return host{socket, listed, ownAddresses} }

// lacks says why a family that fails is one that this host has not; nil: it has, or nobody knows.
//
// Either its kernel has none, which two things must tell, since a sandbox may forbid one of them. Or
// what forwards it is not there, and neither is an address of it that anybody could send to: with
// one, the host is to serve it, and fails. Without an address of another family the host may not
// have got any yet. A lock or a program that hangs ends, and tells nothing of the host.
func (h host) lacks(family addr.Family, failed error) error {
	if errors.Is(h.socket(family), unix.EAFNOSUPPORT) {
		if has, err := h.listed(family); err == nil && !has {
			return fmt.Errorf("this node has no %s: its kernel was built or booted without (ipv6.disable=1); boot it with %s, or have no Services of it in this cluster", family, family)
		}
	}
	if why := outcome.ReasonOf(failed); why != outcome.ReasonProgramMissing && why != outcome.ReasonFeatureMissing {
		return nil
	}
	has := map[addr.Family]bool{}
	if own, err := h.addresses(); err == nil {
		for a := range own {
			has[addr.FamilyOf(a)] = has[addr.FamilyOf(a)] || !a.IsLinkLocalUnicast()
		}
	}
	if has[family] || !slices.ContainsFunc(addr.Families(), func(f addr.Family) bool { return has[f] }) {
		return nil
	}
	return fmt.Errorf("this node has no %s: no interface has an address of it, and what forwards it is not there", family)
}

// socket opens a socket of a family and closes it.
func socket(family addr.Family) error {
	domain := unix.AF_INET
	if family == addr.IPv6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// listed tells whether there is the kernel's list of addresses of IPv6; IPv4 every kernel has.
func listed(family addr.Family) (bool, error) {
	if family != addr.IPv6 {
		return true, nil
	}
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
