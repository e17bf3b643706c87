// Package scenarios tries the whole product: image and chart in a lab that runs no
// kube-proxy, with real kubelets, a real router and a client that counts its replies.
// Each test says why it exists. They share one lab and run one after another.
package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// webs is the namespace in which a web server runs on every node.
const webs = "webs"

// soon is more than what does happen at once takes on a busy machine. It is less than the
// 40 seconds after which Kubernetes takes a silent node for dead, so that whoever waits
// for Fairlead to notice does not get it from Kubernetes.
const soon = 30 * time.Second

// patience is how long to wait for what must happen, whoever brings it about.
const patience = 3 * time.Minute

// long is for how long something is waited for before the log tells what it was.
const long = 5 * time.Second

// keep is an environment variable: if it is set, the lab stays up for a look.
const keep = "FAIRLEAD_KEEP_LAB"

// shared is the lab that all tests use, started by the first of them; its error says why there
// is none.
var shared = sync.OnceValues(func() (*product.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	return up(ctx)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv(keep) == "" {
		if err := lab.Down(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "the lab did not go down:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// up starts the lab with Fairlead in it.
func up(ctx context.Context) (*product.Cluster, error) {
	c, err := product.Start(ctx, lab.Options{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	err = c.Sample(ctx, "pool.yaml", "l2advertisement.yaml", "bgpadvertisement.yaml", "bgppeer.yaml")
	if err == nil && !c.ControlPlane.IPv4.IsValid() {
		_, err = c.Kubectl(ctx, "patch", "bgppeer", "router", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"peerAddress":%q}}`, c.Router.IPv6))
	}
	if err != nil {
		return nil, err
	}
	return c, c.DeployWeb(ctx, webs)
}

// cluster is the shared lab; where a machine cannot have one the test is skipped, naming what is
// missing.
func cluster(t *testing.T) *product.Cluster {
	t.Helper()
	began := time.Now()
	c, err := shared()
	if errors.Is(err, product.ErrMachine) {
		t.Skip(err)
	}
	lab.Keep(t)
	if err != nil {
		t.Fatal("the lab did not come up: ", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.State(time.Since(began)))
		}
	})
	return c
}

// within is a context for one step that must not take longer.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, fmt.Errorf("not within %v", d))
	t.Cleanup(cancel)
	return ctx
}

// expose creates a Service of the web servers, gives its addresses, and deletes it
// when the test ends.
func expose(t *testing.T, c *product.Cluster, s *corev1.Service) []netip.Addr {
	t.Helper()
	create(t, c, s)
	var addresses []netip.Addr
	ctx := within(t, patience)
	err := lab.Until(ctx, func() (err error) {
		addresses, err = c.Addresses(ctx, client.ObjectKeyFromObject(s), max(1, len(s.Spec.IPFamilies)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

// create creates an object and deletes it when the test ends.
func create(t *testing.T, c *product.Cluster, o client.Object) {
	t.Helper()
	if err := c.API.Create(within(t, patience), o); err != nil {
		t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
	t.Cleanup(func() { remove(t, c, o) })
}

func remove(t *testing.T, c *product.Cluster, o client.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.IgnoreNotFound(c.API.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
		t.Errorf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

// reply asks until there is a reply.
func reply(t *testing.T, from *lab.Machine, address netip.Addr) product.Reply {
	t.Helper()
	got, err := product.FirstReply(within(t, soon), from, address, 80)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// eventually fails the test if the question has no good answer in time.
func eventually(t *testing.T, limit time.Duration, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, began := within(t, limit), time.Now()
	var last error
	err := lab.Until(ctx, func() error {
		err := ask(ctx)
		if err != nil {
			last = err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > long {
		t.Logf("it took %v until this was no longer so: %v", took.Round(time.Millisecond), last)
	}
}
