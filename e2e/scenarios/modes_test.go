package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// The mode of forwarding is changed in the values of the release, and back: speaker after speaker
// begins anew with the other one, takes over what the one before it has in the kernel, and removes
// that. Of 500 new connections a second none fails, those that are open stay so, and no address moves.
func TestAnotherModeOfForwarding(t *testing.T) {
	c := cluster(t)
	vips, end := rush(t, c, "modes", everyone)
	endHeld := hold(t, c, vips)
	before := owners(t, c, vips)
	for _, mode := range []string{"nftables", "iptables"} {
		if err := c.Install(within(t, 5*time.Minute), 3, "forwarding.mode="+mode); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Nodes() {
			eventually(t, soon, func(ctx context.Context) error {
				now, err := n.Exec(ctx, "curl", "-sS", "http://127.0.0.1:10249/proxyMode")
				if err == nil && now != mode {
					err = fmt.Errorf("%s says that its mode is %q; it is to be %q", n.Name, now, mode)
				}
				return err
			})
		}
	}
	endHeld()
	end()
	unmoved(t, c, vips, before, "now")
}
