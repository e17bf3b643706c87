package forwarding

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/netfilter/selinux"
	"fairlead.dev/fairlead/speaker/outcome"
)

// familyDetection tells a family that this host has not at all from one that fails.
type familyDetection struct {
	socket    func(addr.Family) error             // opens one
	listed    func(addr.Family) (bool, error)     // whether the kernel has a list of addresses of a family
	addresses func() (map[netip.Addr]bool, error) // the host's
}

func thisHost() familyDetection { return familyDetection{socket, listed, ownAddresses} }

// explain adds to the error of an attempt the reason of each family that the host has not. It asks anew each
// time that a family fails, so that one that comes is one that counts.
func (d familyDetection) explain(err error) {
	for _, failed := range outcome.AllOf[*outcome.FamilyError](err) {
		if failed.Settled {
			continue
		}
		if why := d.lacks(failed.Family, failed.Err); why != nil {
			failed.Err = errors.Join(outcome.Caused(outcome.ReasonFamilyAbsent, why), failed.Err)
		} else {
			failed.Err = selinux.Blame(failed.Err)
		}
	}
}

// lacks says why a family that fails is one that this host has not; nil: it has, or that is unknown.
//
// Either its kernel has none, which two checks must agree on, since a sandbox may forbid one of them. Or
// what forwards it is missing, and no interface has an address of it: with one, the host is to serve the
// family, and fails. A host without an address of the other family may not have got any yet. A lock or a
// program that hangs ends, and says nothing about the host.
func (d familyDetection) lacks(family addr.Family, failed error) error {
	if why := d.without(family); why != nil {
		return why
	}
	if why := outcome.ReasonOf(failed); why != outcome.ReasonProgramMissing && why != outcome.ReasonFeatureMissing {
		return nil
	}
	has := map[addr.Family]bool{}
	if own, err := d.addresses(); err == nil {
		for a := range own {
			has[addr.FamilyOf(a)] = has[addr.FamilyOf(a)] || !a.IsLinkLocalUnicast()
		}
	}
	if has[family] || !slices.ContainsFunc(addr.Families(), func(f addr.Family) bool { return has[f] }) {
		return nil
	}
	return fmt.Errorf("this node has no %s: no interface has an address of it, and what forwards it is not there", family)
}

// without says that the kernel has not a family at all; nil: it has, or that is unknown.
func (d familyDetection) without(family addr.Family) error {
	if !errors.Is(d.socket(family), unix.EAFNOSUPPORT) {
		return nil
	}
	if has, err := d.listed(family); err != nil || has {
		return nil
	}
	return fmt.Errorf("this node has no %s: its kernel was built or booted without (ipv6.disable=1); boot it with %s, or have no Services of it in this cluster", family, family)
}

// unserved returns an *outcome.FamilyError for each family of which something is to be forwarded, that no backend failed to
// write, and that the kernel has not: nf_tables takes rules of IPv6 in a kernel booted with ipv6.disable=1. All that is to be
// forwarded of it is missing then.
func (d familyDetection) unserved(want desired.Forwarding, missing outcome.Missing, absent map[addr.Family]bool) error {
	var errs []error
	for _, family := range addr.Families() {
		if !want.Has(family) || absent[family] {
			continue
		}
		if why := d.without(family); why != nil {
			leaveOut(family, want, missing)
			errs = append(errs, &outcome.FamilyError{Family: family, Settled: true, Err: outcome.Caused(outcome.ReasonFamilyAbsent, why)})
		}
	}
	return errors.Join(errs...)
}

// leaveOut makes all that is to be forwarded of a family missing.
func leaveOut(family addr.Family, want desired.Forwarding, missing outcome.Missing) {
	for key := range want.Ports {
		if _, lacking := missing[key]; !lacking && key.Family == family {
			missing[key] = &desired.Port{}
		}
	}
}

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
