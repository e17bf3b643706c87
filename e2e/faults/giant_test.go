package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/lab"
)

// giant is a Service with more destinations than a node is to have for one.
func giant() fault {
	before := map[*lab.Node]int{}
	return fault{
		name: "a tenant has a giant Service",
		inject: func(t *testing.T, k *kit, _ *rand.Rand) {
			for _, n := range k.Nodes() {
				mib, err := k.memory(within(t, soon), n)
				if err != nil {
					t.Fatal(err)
				}
				before[n] = mib
			}
			var addresses []netip.Addr
			for a := netip.MustParseAddr("198.18.0.1"); len(addresses) < 200; a = a.Next() {
				addresses = append(addresses, a)
			}
			ports := make([]int, 1000)
			for i := range ports {
				ports[i] = 10000 + i
			}
			k.create(t, claim(addresses, corev1.ProtocolTCP, ports...)) // others are watched from now on
		},
		check: func(ctx context.Context, k *kit) error {
			const most = 50
			for _, n := range k.Nodes() {
				mib, err := k.memory(ctx, n)
				if err != nil {
					return err
				}
				if mib > before[n]+most {
					return fmt.Errorf("the agent on %s had %d MiB, and has %d", n.Name, before[n], mib)
				}
			}
			return k.hears(ctx, "TooLarge")
		},
	}
}

// memory is how many MiB the agent on a node has.
func (k *kit) memory(ctx context.Context, n *lab.Node) (int, error) {
	out, err := n.Exec(ctx, "sh", "-c", "ps -o rss= -p $(pgrep -f '"+agent+"')")
	if err != nil {
		return 0, err
	}
	kib, err := strconv.Atoi(strings.TrimSpace(out))
	return kib >> 10, err
}
