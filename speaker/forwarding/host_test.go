package forwarding

import (
	"context"
	"maps"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestForwardingIsSwitchedOff has the host's settings say that it forwards nothing, at the start and later, of one family or
// by one interface: all ports of the family are missing until they say otherwise, and each change is noticed.
func TestForwardingIsSwitchedOff(t *testing.T) {
	const every4, every6, one4 = "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/conf/client/forwarding"
	for _, mode := range []Mode{IPTables, NFTables} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t)
			l.inMode(mode)
			want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
			for _, f := range families() {
				of := f.want(f.vip, 30053, "e1")
				maps.Copy(want.Ports, of.Ports)
				want.Own = append(want.Own, f.node)
				want.NodePorts = append(want.NodePorts, of.NodePorts...)
			}
			told := make(chan struct{}, 1)
			expect := func(when string, off ...addr.Family) {
				t.Helper()
				var missing outcome.Missing
				var err error
				l.node.Do(func() { missing, err = l.backend.Apply(t.Context(), want) })
				failed := outcome.AllOf[*outcome.FamilyError](err)
				if len(missing) != len(off) || len(failed) != len(off) {
					t.Fatalf("%s: %d ports are missing, error %v", when, len(missing), err)
				}
				for i, family := range off {
					for key := range missing {
						if key.Family != family {
							t.Errorf("%s: a port of %s is missing", when, key.Family)
						}
					}
					if failed[i].Family != family || outcome.ReasonOf(failed[i]) != outcome.ReasonForwardingDisabled || !failed[i].Settled {
						t.Errorf("%s: %v", when, failed[i])
					}
				}
			}
			set := func(name, value string) {
				t.Helper()
				select {
				case <-told:
				default:
				}
				l.node.Do(func() { l.node.Sysctl(name, value) })
				select {
				case <-told:
				case <-time.After(answerIn):
					t.Fatalf("%s=%s: not noticed", name, value)
				}
			}
			l.node.Do(func() { l.node.Sysctl(every4, "0") })
			expect("from the start", addr.IPv4)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go l.node.Do(func() {
				defer close(ended)
				l.backend.Watch(ctx, func() {
					select {
					case told <- struct{}{}:
					default:
					}
				})
			})
			defer func() { stop(); <-ended }()
			set(every4, "1")
			expect("on")
			set(every6, "0")
			expect("no IPv6", addr.IPv6)
			set(every6, "1")
			expect("on again")
			set(one4, "0")
			expect("one interface", addr.IPv4)
			set(one4, "1")
			expect("all interfaces")
			set(every6, "0")
			for _, link := range []string{"client", "e1", "e2"} {
				blackbox.RunOn(t, l.node, "ip", "-6", "addr", "flush", "dev", link, "scope", "global")
			}
			absent := func() (is bool) {
				l.node.Do(func() {
					_, err := l.backend.Apply(t.Context(), want)
					is = outcome.Absent(err)[addr.IPv6] && outcome.Failing(err) == nil
				})
				return is
			}
			if !absent() {
				t.Error("a host of IPv4 alone that forwards no IPv6 fails")
			}
		})
	}
}
