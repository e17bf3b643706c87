package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

const (
	// controllerTest is what make test-build makes of the controller's tests, below the
	// checkout.
	controllerTest = "build/controller.test"
	// crashing has the Services and, with -large, the pools of controller.TestCrashes.
	crashing = "crashes"
	// crashesFor is long enough for some five leaders.
	crashesFor = 40 * time.Second
)

// crashesRange has the addresses that Services get in controller.TestCrashes.
const crashesRange = "192.0.2.0/24"

// Whatever ends the controller that leads, at whatever step of giving an address, no two
// Services ever show one address that they do not share. controller.TestCrashes proves it
// with an API server alone; here it runs its controllers against the cluster's, in the
// place of the product's own and with their rights, while speakers announce what they give
// and a client loses nothing. The product's controller then takes over what they left.
func TestControllersCrash(t *testing.T) {
	c := cluster(t)
	test := filepath.Join(c.Root, controllerTest)
	if _, err := os.Stat(test); err != nil {
		t.Skipf("%v: run make test-build", err)
	}
	bystander := expose(t, c, product.WebService(webs, "bystander", "layer2", everyone))[0]
	reply(t, c.Client, bystander)
	if err := c.DeployWeb(within(t, patience), crashing); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, c, &corev1.Namespace{ObjectMeta: name(crashing)}) })
	create(t, c, &v1beta1.BGPAdvertisement{ObjectMeta: name(crashing), Spec: v1beta1.BGPAdvertisementSpec{IPAddressPools: []string{crashing, crashing + "-large"}}})
	giveNoOther(t, c)
	restore := withoutController(t, c)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	loaded, learned := make(chan tally, 1), make(chan map[string]bool, 1)
	go func() { loaded <- load(ctx, c.Client, bystander, 80) }()
	go func() { learned <- routesLearned(ctx, c) }()
	crash(t, c, test)
	stop()

	count := <-loaded
	t.Logf("%d requests to another Service, %d failed, %d held up, longest wait %v", count.OK+count.Failed, count.Failed, count.Held, count.Longest)
	if tooMany(count) {
		t.Errorf("%d of %d requests to another Service failed; they met %v", count.Failed, count.OK+count.Failed, count.Errors)
	}
	routes := <-learned
	t.Logf("the router learned %d routes to addresses that the controllers gave", len(routes))
	if len(routes) < 5 {
		t.Errorf("the router learned no more than %v: the speakers do not announce", routes)
	}
	eventually(t, patience, func(ctx context.Context) error {
		left, err := routesNow(ctx, c)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("all Services are gone, and the router has routes to %v", left)
		}
		return err
	})
	restore()
	reply(t, c.Client, expose(t, c, product.WebService(webs, "after-crashes", "layer2", everyone))[0])
}

// crash runs the controller's test against the lab's API server. It gives way to all else: pods
// without a claim to the processor would have to wait for seven controllers that begin anew, on
// a machine that is the whole cluster, and their clients for them.
func crash(t *testing.T, c *product.Cluster, test string) {
	t.Helper()
	var out bytes.Buffer
	err := c.ControlPlane.Run(within(t, crashesFor+10*time.Minute), lab.Stdio{Out: &out, Err: &out},
		"nice", "-n", "15", test, "-test.v", "-test.run=^TestCrashes$", "-crashes.for="+crashesFor.String(), "-crashes.kubeconfig="+c.Kubeconfig())
	found := regexp.MustCompile(`(\d+) leaders, (\d+) writes of statuses, \d+ Services created`).FindStringSubmatch(out.String())
	if err != nil || found == nil || !strings.Contains(out.String(), "--- PASS: TestCrashes") {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log(found[0])
	for i, least := range []int{3, 10} {
		if n, err := strconv.Atoi(found[1+i]); err != nil || n < least {
			t.Errorf("%s: that proves nothing", found[0])
		}
	}
}

// giveNoOther keeps Services that ask for no pool from getting addresses of the samples'
// until the test ends, so that they all contend for a few.
func giveNoOther(t *testing.T, c *product.Cluster) {
	t.Helper()
	set := func(ctx context.Context, autoAssign bool) error {
		_, err := c.Kubectl(ctx, "patch", "ipaddresspool", "layer2", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"autoAssign":%t}}`, autoAssign))
		return err
	}
	if err := set(within(t, soon), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := set(ctx, true); err != nil {
			t.Error(err)
		}
	})
}

// withoutController ends the product's controllers, and gives what brings them back, which
// the end of the test does, too.
func withoutController(t *testing.T, c *product.Cluster) (restore func()) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	if err := c.API.Get(within(t, soon), client.ObjectKey{Namespace: product.Namespace, Name: "fairlead-controller"}, deployment); err != nil {
		t.Fatal(err)
	}
	scale := func(ctx context.Context, replicas int32) error {
		_, err := c.Kubectl(ctx, "-n", product.Namespace, "scale", "deployment/"+deployment.Name, fmt.Sprintf("--replicas=%d", replicas))
		return err
	}
	restore = func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := scale(ctx, *deployment.Spec.Replicas); err != nil {
			t.Error(err)
		}
		if err := c.WaitInstalled(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	if err := scale(within(t, soon), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func(ctx context.Context) error {
		var pods corev1.PodList
		err := c.API.List(ctx, &pods, client.InNamespace(product.Namespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels))
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d controllers are still there", len(pods.Items))
		}
		return err
	})
	return restore
}

// routesLearned follows which addresses of controller.TestCrashes the router has routes
// to, until ctx ends.
func routesLearned(ctx context.Context, c *product.Cluster) map[string]bool {
	all := map[string]bool{}
	for ticks := time.Tick(200 * time.Millisecond); ctx.Err() == nil; <-ticks {
		now, err := routesNow(ctx, c)
		if err != nil {
			continue // ctx has ended, or too few routes will tell
		}
		for _, route := range now {
			all[route] = true
		}
	}
	return all
}

// routesNow are the routes that the router has to addresses of controller.TestCrashes.
func routesNow(ctx context.Context, c *product.Cluster) ([]string, error) {
	text, err := c.Router.VTYSH(ctx, "show ip route "+crashesRange+" longer-prefixes json")
	if err != nil {
		return nil, err
	}
	var routes map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &routes); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	var prefixes []string
	for prefix := range routes {
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
