package main

import (
	"fmt"
	"testing"
	"time"

	"fairlead.dev/fairlead/controller/leasefence"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// A controller goes on while etcd is restored to an older state: what was made since is gone, and its addresses are free;
// what was deleted since is back, and has the address that another Service had meanwhile.
func TestEtcdIsRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, apiserver.Backups)
	c.start(t, func(o *options) { // longer than the API server is away
		o.lease = leasefence.Lease{Duration: 3 * time.Minute, Renew: 2 * time.Minute, Retry: time.Second}
	})
	c.pool(t, "restored", "192.0.2.0/30")
	kept := c.service(t, "kept")
	c.holds(t, kept, "192.0.2.0")
	back := c.service(t, "back")
	c.holds(t, back, "192.0.2.1")
	c.auditor.stop() // what it watches goes back
	restore := c.server.Backup(t)
	if err := c.Delete(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.holds(t, c.service(t, fmt.Sprintf("lost-%d", i)), fmt.Sprintf("192.0.2.%d", i+1))
	}
	restore()
	c.holds(t, c.service(t, "next"), "192.0.2.2")
	c.holds(t, c.service(t, "last"), "192.0.2.3")
	c.holds(t, kept, "192.0.2.0")
	c.holds(t, back, "192.0.2.1")
	c.refused(t, c.service(t, "late"), "PoolExhausted")
}
