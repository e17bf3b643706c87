// Package faults tries one cluster with what others do to it: tenants who may edit a namespace, strangers on the
// network, programs that stop, and an API server that answers badly. A client, routers and nodes are watched all
// the while. Each fault is undone, and leaves the cluster whole for the next.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
	"fairlead.dev/fairlead/e2e/product"
)

var seed = flag.Uint64("faults.seed", 0, "the backend, the order of the faults, and their victims; 0: something else each time")

const (
	// soon is more than it takes until all is as before, on a busy machine.
	soon = 30 * time.Second
	// lasts is for how long a fault is watched.
	lasts = 5 * time.Second
)

// fault is something that others do to the cluster.
type fault struct {
	name string
	gate bool // in make test, too
	// inject has it happen, until the test ends that it is given.
	inject func(t *testing.T, k *kit, r *rand.Rand)
	// check is what has to hold besides while it lasts; nil: nothing.
	check func(ctx context.Context, k *kit) error
	// excused is what cannot hold while it lasts.
	excused excuses
}

// excuses are what a fault cannot but break.
type excuses struct {
	moves   bool // the addresses of layer 2 go to other nodes
	lost    bool // clients lose connections
	routes  bool // the router loses routes
	unheard bool // changes of the cluster reach nodes once it is over
	unasked bool // the API server reaches no kubelet
}

func all(b backend) []fault {
	var faults []fault
	for _, some := range [][]fault{byTenants(), byStrangers(), byStopping(), byTheAPIServer(), byNeighbours(), byFirewalls(b)} {
		faults = append(faults, some...)
	}
	return faults
}

// TestFaults lives through all faults, with a backend, in an order and with victims that a seed gives.
func TestFaults(t *testing.T) {
	chosen := *seed
	if chosen == 0 {
		chosen = uint64(time.Now().UnixNano())
	}
	forwards := chooseBackend(t, chosen)
	t.Logf("-faults.seed=%d -faults.backend=%s", chosen, forwards)
	k := start(t, forwards)
	r := rand.New(rand.NewPCG(chosen, 0))
	faults := all(forwards)
	r.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, f := range faults {
		// What one fault draws does not depend on which others there are.
		own := rand.New(rand.NewPCG(chosen, hash(f.name)))
		if testing.Short() && !f.gate {
			continue
		}
		t.Run(f.name, func(t *testing.T) { k.live(t, f, own) })
	}
}

// live has a fault happen, watches, and waits until the cluster is whole again.
func (k *kit) live(t *testing.T, f fault, r *rand.Rand) {
	began := time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.State(time.Since(began)))
		}
	})
	clients := k.watchClients(t)
	t.Run("while", func(t *testing.T) {
		k.reset()
		f.inject(t, k, r)
		for end := time.Now().Add(lasts); ; time.Sleep(lasts / 10) {
			err := k.holds(t, f)
			if err != nil && k.stalls.Since(began) {
				t.Logf("on a machine that stands still: %v", err)
				time.Sleep(promptly)
				err = k.holds(t, f)
			}
			if err != nil {
				t.Errorf("%v after it began: %v", time.Since(began).Round(time.Millisecond), err)
				break
			}
			if time.Now().After(end) {
				break
			}
		}
	})
	k.reset()
	k.whole(t)
	clients.end(t, f.excused.lost)
}

func TestMain(m *testing.M) {
	if os.Getenv(asPulse) != "" {
		asCopy()
		return
	}
	code := m.Run()
	if os.Getenv("FAIRLEAD_KEEP_LAB") == "" {
		if err := lab.Down(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "the lab did not go down:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// start is a cluster with Fairlead and what is watched in it; where a machine cannot have one the test is skipped.
func start(t *testing.T, b backend) *kit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	c, err := product.Up(ctx, lab.Options{BFD: true, LegacyIPTables: b == iptablesLegacy, Progress: os.Stderr})
	if errors.Is(err, product.ErrMachine) {
		t.Skip(err)
	}
	lab.Keep(t)
	if err != nil {
		t.Fatal("the lab did not come up: ", err)
	}
	k := &kit{Cluster: c, backend: b, api: newAPI(t, c), stalls: probe.WatchStalls()}
	t.Cleanup(k.stalls.Stop)
	if err := k.install(ctx); err != nil {
		t.Fatal(err)
	}
	k.whole(t)
	return k
}

// within is a context for one step that must not take longer.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, fmt.Errorf("not within %v", d))
	t.Cleanup(cancel)
	return ctx
}

// atEnd runs a step when the test ends, whose error fails it.
func atEnd(t *testing.T, step func(ctx context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := step(ctx); err != nil {
			t.Error("undoing it: ", err)
		}
	})
}
