package forwarding

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestAKernelBootedWithoutIPv6 has a node of which the kernel was booted with ipv6.disable=1 serve what there is of IPv4, and
// tell, by the name of that setting, why it serves nothing of IPv6, though the kernel takes the rules of it. Where this kernel has
// IPv6, it is only said that it has not; e2e/kernels boots one that really has not.
func TestAKernelBootedWithoutIPv6(t *testing.T) {
	l := newLab(t)
	four, six := families()[0], families()[1]
	for _, mode := range []Mode{IPTables, NFTables} {
		t.Run(string(mode), func(t *testing.T) {
			l.t = t
			l.inMode(mode)
			if netlab.HasIPv6() {
				l.backend.families.socket = func(f addr.Family) error {
					return map[addr.Family]error{addr.IPv6: unix.EAFNOSUPPORT}[f]
				}
				l.backend.families.listed = func(f addr.Family) (bool, error) { return f == addr.IPv4, nil }
			}
			l.apply(four.want(four.vip, 30053, "e1"))
			for _, to := range []netip.AddrPort{netip.AddrPortFrom(four.vip, 53), netip.AddrPortFrom(four.node, 30053)} {
				flow := l.dial(to)
				if got, err := flow.Ask(); err != nil || got.Server != "e1" {
					t.Errorf("%s: %v, %v, want an answer of e1", to, got, err)
				}
				flow.Close()
			}
			both := four.want(four.vip, 30053, "e2")
			maps.Copy(both.Ports, six.want(six.vip, 30053, "e2").Ports)
			var missing outcome.Missing
			var err error
			l.node.Do(func() { missing, err = l.backend.Apply(t.Context(), both) })
			behind, absent := outcome.Behind(missing, err), outcome.Absent(err)
			if len(missing) != 1 || behind[addr.IPv4] || behind[addr.IPv6] || absent[addr.IPv4] || !absent[addr.IPv6] || err == nil || !strings.Contains(err.Error(), "ipv6.disable=1") {
				t.Errorf("%d ports are missing, behind in %v, absent %v, error %v", len(missing), behind, absent, err)
			}
			flow := l.dial(netip.AddrPortFrom(four.vip, 53))
			defer flow.Close()
			if got, err := flow.Ask(); err != nil || got.Server != "e2" {
				t.Errorf("beside Services of IPv6: %v, %v, want an answer of e2", got, err)
			}
			l.node.Do(func() {
				if err := l.backend.Cleanup(t.Context()); err != nil {
					t.Errorf("clean up: %v", err)
				}
			})
		})
	}
}
