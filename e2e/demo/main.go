// Command demo shows Fairlead at work: it brings the lab up without kube-proxy,
// installs the image and the chart, exposes a web server over layer 2 and BGP, shows
// who announces what and which source the pods see, kills the announcing node and
// shows the client being served again. It leaves the lab up to be explored.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\nThe demo stopped: %v\nTake down what is up with: make demo-down\n", err)
		os.Exit(1)
	}
}

// demo is the story, a chapter a function.
func demo(ctx context.Context) error {
	if missing := lab.Missing(); len(missing) > 0 {
		return fmt.Errorf("this machine cannot run it:\n%w", errors.Join(missing...))
	}
	s := newStage(os.Stdout)
	s.chapter("A bare-metal cluster without kube-proxy")
	if err := lab.Down(ctx); err != nil {
		return err
	}
	l, err := lab.Up(ctx, lab.Options{Progress: s})
	if err != nil {
		return err
	}
	c, err := product.New(l)
	if err != nil {
		return err
	}
	show := &show{stage: s, Cluster: c}
	for _, chapter := range []func(context.Context) error{
		show.install, show.configure, show.expose, show.serve, show.lose, show.explore,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// show is the lab with Fairlead in it, and what is exposed.
type show struct {
	*stage
	*product.Cluster
	services []exposed
}

// install brings image and chart in, as a user would.
func (s *show) install(ctx context.Context) error {
	s.chapter("Fairlead by its image and its Helm chart")
	if err := s.step("image given to every node", func() error { return s.LoadImage(ctx) }); err != nil {
		return err
	}
	return s.step("helm install fairlead charts/fairlead --namespace "+product.Namespace+" --set apiServer.host="+s.ControlPlane.IPv4.String(), func() error {
		return s.Install(ctx, 4)
	})
}

// configure applies the samples that every reader can apply as well.
func (s *show) configure(ctx context.Context) error {
	s.chapter("Two pools, a router, and what to announce where")
	files := []string{"pool.yaml", "l2advertisement.yaml", "bgppeer.yaml", "bgpadvertisement.yaml"}
	for _, file := range files {
		if err := s.step("kubectl apply -f config/samples/"+file, func() error { return s.Sample(ctx, file) }); err != nil {
			return err
		}
	}
	return s.kubectl(ctx, "get", "ipaddresspools,bgppeers")
}

// lose kills the node that answers for the layer 2 address and has routes announced.
func (s *show) lose(ctx context.Context) error {
	first := s.services[0]
	owner, err := s.Answerer(ctx, first.address)
	if err != nil {
		return err
	}
	s.chapter(fmt.Sprintf("The power of %s, which answers for %s, is cut", owner.Name, first.address))
	began := time.Now()
	if err := owner.Kill(ctx); err != nil {
		return err
	}
	s.say("%s is dead", owner.Name)
	for _, e := range s.services {
		if err := s.servedAgain(ctx, e, began); err != nil {
			return err
		}
	}
	return s.routesWithout(ctx, owner, began)
}

// routesWithout waits until the router has no route over the dead node any more.
func (s *show) routesWithout(ctx context.Context, dead *lab.Node, began time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("not for 30 s"))
	defer cancel()
	for _, e := range s.services {
		if e.pool == "layer2" {
			continue
		}
		err := product.Until(ctx, func() error {
			hops, err := s.Router.Routes(netip.PrefixFrom(e.address, e.address.BitLen()))
			if err == nil && slices.Contains(hops, dead.IPv4) {
				err = fmt.Errorf("the router still has a route to %s over %s", e.address, dead.Name)
			}
			return err
		})
		if err != nil {
			return err
		}
		s.say("%-15s no route over %s any more %d ms after the power went", e.address, dead.Name, time.Since(began).Milliseconds())
		if err := s.announcers(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// retried is longer than a reply takes, and shorter than an attempt that is lost.
const retried = 90 * time.Millisecond

// servedAgain waits until the client is served by the living nodes: until it gets
// several replies in a row. One has to do under policy Cluster, where the living nodes
// go on choosing the dead node's pod until Kubernetes notices, and over BGP, where the
// router does until the hold time ends.
func (s *show) servedAgain(ctx context.Context, e exposed, began time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("no reply for 30 s"))
	defer cancel()
	wanted := 1
	if e.pool == "layer2" && e.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		wanted = 10
	}
	var since time.Duration
	for row := 0; row < wanted; row++ {
		asked := time.Now()
		if _, err := product.FirstReply(ctx, s.Client, e.address, 80); err != nil {
			return err
		}
		if row == 0 || time.Since(asked) > retried {
			row, since = 0, time.Since(began) // one was lost: count anew
		}
	}
	s.say("%-15s policy %-7s served again %5d ms after the power went", e.address, e.Spec.ExternalTrafficPolicy, since.Milliseconds())
	if e.pool != "layer2" {
		return nil
	}
	return s.announcers(ctx, e)
}

// explore tells what there is to try.
func (s *show) explore(context.Context) error {
	s.chapter("It is yours now")
	s.plain(`
  go run ./e2e/lab/cmd/lab kubectl get services -A          any kubectl command
  go run ./e2e/lab/cmd/lab kubectl get fairlead             everything of ours
  go run ./e2e/lab/cmd/lab kubectl explain bgppeer.spec     the manual
  go run ./e2e/lab/cmd/lab router show ip route bgp         what the router learned
  go run ./e2e/lab/cmd/lab in client curl -s http://%s/clientip
  go run ./e2e/lab/cmd/lab in node1 iptables-save -t nat    our rules
  make demo-down                                            removes every trace
`, s.services[0].address)
	return nil
}
