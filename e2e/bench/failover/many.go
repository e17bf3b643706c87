package failover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/bench/process"
	"fairlead.dev/fairlead/e2e/lab"
)

// What is measured of many addresses.
const (
	manyCome   measure = "all of many announced: BGPAdvertisement → every node's routes on both sessions"
	manyGo     measure = "all of many withdrawn: BGPAdvertisement deleted → no node's routes on either"
	manyMemory measure = "VmRSS of a node's speaker with them, all its processes"
)

// The second router is another bgpd beside the first, which takes routes and knows no kernel.
const (
	secondPort = 1790
	secondDir  = "/run/fairlead-bench-second"
)

// manyServices are where the many are.
const manyServices = "many"

// kubeProxy is the command line of kube-proxy.
const kubeProxy = "^kube-proxy "

// errImpatient is why a contestant has no figures of many addresses.
var errImpatient = errors.New("patience is over")

// many announces so many addresses at once over two sessions of each node. A contestant that
// does not get there within the patience of the bench has no figures, and the report says so.
func (b *bench) many(ctx context.Context, n int) error {
	ctx, stop := context.WithTimeoutCause(ctx, b.Patience, errImpatient)
	defer stop()
	step := "before the first Service"
	err := b.announceMany(ctx, n, func(format string, args ...any) {
		step = fmt.Sprintf(format, args...)
		b.tell("%s", step)
	})
	if err != nil && errors.Is(context.Cause(ctx), errImpatient) {
		b.results.Note(fmt.Sprintf("%s, with %d addresses, was stopped after %v, when this was done: %s", b.name, n, b.Patience, step))
		b.tell("stopped after %v: %v", b.Patience, err)
		return nil
	}
	return err
}

func (b *bench) announceMany(ctx context.Context, n int, done func(format string, args ...any)) error {
	if err := b.secondRouter(ctx); err != nil {
		return err
	}
	pool := b.object("v1beta1", "IPAddressPool", "many", "addresses: [10.200.0.0/16], autoAssign: false")
	if err := lab.Until(ctx, func() error { return b.Apply(ctx, pool+b.peer("second", secondPort)) }); err != nil {
		return err
	}
	// Speakers that follow each Service as it comes would take the processors that create them.
	if err := b.rest(ctx, true); err != nil {
		return err
	}
	if err := b.createMany(ctx, n, done); err != nil {
		return fmt.Errorf("create %d Services: %w", n, err)
	}
	if err := lab.Until(ctx, func() error { return b.allGiven(ctx, n, done) }); err != nil {
		return err
	}
	if err := b.rest(ctx, false); err != nil {
		return err
	}
	done("all are created and have addresses, and the speakers are back")
	if err := lab.Until(ctx, b.settled(ctx, done)); err != nil {
		return err
	}
	done("all have forwarding")
	for range min(b.Rounds, 3) {
		began := time.Now()
		if err := b.Apply(ctx, b.object("v1beta1", "BGPAdvertisement", "many", "ipAddressPools: [many]")); err != nil {
			return err
		}
		if err := lab.Until(ctx, func() error { return b.received(ctx, n, 0) }); err != nil {
			return err
		}
		b.took(manyCome, time.Since(began))
		for _, node := range b.Nodes() {
			use, err := use(ctx, node, b.processes)
			if err != nil {
				return err
			}
			b.add(manyMemory, use.Resident)
		}
		began = time.Now()
		if _, err := b.Kubectl(ctx, "delete", "-n", b.namespace, "bgpadvertisements."+b.group, "many", "--wait=false"); err != nil {
			return err
		}
		if err := lab.Until(ctx, func() error { return b.received(ctx, 0, n-1) }); err != nil {
			return err
		}
		b.took(manyGo, time.Since(began))
	}
	return nil
}

// rest stops speakers and kube-proxy, or brings them back: the former by a selector that no node
// matches, kube-proxy by a signal. The rules of both stay.
func (b *bench) rest(ctx context.Context, rest bool) error {
	selector, then := "null", "CONT"
	if rest {
		selector, then = `"rests"`, "STOP"
	}
	patch := `{"spec":{"template":{"spec":{"nodeSelector":{"bench":` + selector + `}}}}}`
	if _, err := b.Kubectl(ctx, "patch", "-n", b.namespace, "daemonset/"+b.daemon, "--type=merge", "-p", patch); err != nil {
		return err
	}
	if b.proxy != "" {
		for _, n := range b.Nodes() {
			if err := signal(ctx, n, then, kubeProxy); err != nil {
				return err
			}
		}
	}
	if rest {
		return nil
	}
	return b.ready(ctx)
}

// secondRouter runs until the context ends.
func (b *bench) secondRouter(ctx context.Context) error {
	return b.runDaemon(ctx, secondDir, fmt.Sprintf(`frr defaults traditional
router bgp %d
 bgp router-id %v
 no bgp ebgp-requires-policy
 neighbor nodes peer-group
 neighbor nodes remote-as %d
 neighbor nodes timers 3 9
 bgp listen range %v/24 peer-group nodes
`, lab.RouterASN, b.Router.IPv4.Next(), lab.NodeASN, b.Router.IPv4),
		"/usr/lib/frr/bgpd", "--no_zebra", "--no_kernel", "--user=frr", "--group=frr", "--bgp_port="+strconv.Itoa(secondPort),
		"--vty_socket="+secondDir, "--vty_port=0", "--config_file="+secondDir+"/conf", "--pid_file="+secondDir+"/pid")
}

// webServer is one of the pods of the web server; an error if there is none.
func (b *bench) webServer(ctx context.Context) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := b.API.List(ctx, &pods, client.InNamespace(namespace)); err != nil || len(pods.Items) == 0 {
		return nil, errors.Join(err, errors.New("where are the web servers?"))
	}
	return &pods.Items[0], nil
}

// endpoint is an EndpointSlice of a Service with one pod.
func endpoint(s *corev1.Service, pod *corev1.Pod) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{pod.Status.PodIP}, NodeName: &pod.Spec.NodeName, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}},
	}
	for _, port := range s.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: &port.Name, Port: new(port.TargetPort.IntVal), Protocol: new(cmp.Or(port.Protocol, corev1.ProtocolTCP)),
		})
	}
	return slice
}

// createMany creates Services without NodePorts, of which there are too few, and with one
// endpoint each.
func (b *bench) createMany(ctx context.Context, n int, done func(format string, args ...any)) error {
	pod, err := b.webServer(ctx)
	if err != nil {
		return err
	}
	config, err := b.RESTConfig()
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	api, err := client.New(config, client.Options{Scheme: b.API.Scheme()})
	if err != nil {
		return err
	}
	if err := api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manyServices}}); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		if i%1000 == 0 && i > 0 {
			done("%d of %d Services are created", i, n)
		}
		group.Go(func() error {
			s := b.service(fmt.Sprintf("s-%05d", i), manyServices, corev1.ServiceExternalTrafficPolicyCluster)
			s.Namespace, s.Spec.Selector, s.Spec.AllocateLoadBalancerNodePorts = manyServices, nil, new(false)
			s.Spec.Ports = s.Spec.Ports[:1]
			return errors.Join(api.Create(ctx, s), api.Create(ctx, endpoint(s, pod)))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	done("%d Services are created", n)
	return nil
}

// allGiven fails while a Service has no address.
func (b *bench) allGiven(ctx context.Context, n int, done func(format string, args ...any)) error {
	var all corev1.ServiceList
	if err := b.API.List(ctx, &all, client.InNamespace(manyServices)); err != nil {
		return err
	}
	given := 0
	for _, s := range all.Items {
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			given++
		}
	}
	if given < n {
		done("%d of %d Services have addresses", given, n)
		time.Sleep(5 * time.Second) // a list of all takes CPU time from the controller
		return fmt.Errorf("%d of %d Services have an address", given, n)
	}
	return nil
}

// received fails unless both routers have at least or at most so many routes of each node.
func (b *bench) received(ctx context.Context, least, most int) error {
	const show = "show bgp ipv4 unicast summary json"
	for _, dir := range []string{"", secondDir} {
		command := []string{"vtysh", "--vty_socket", dir, "-d", "bgpd", "-c", show}
		ask := b.Router.Exec
		if dir == "" {
			command, ask = []string{show}, b.Router.VTYSH
		}
		out, err := ask(ctx, command...)
		if err != nil {
			return err
		}
		var summary struct {
			Peers map[string]struct {
				Received int `json:"pfxRcd"`
			} `json:"peers"`
		}
		if err := json.Unmarshal([]byte(out), &summary); err != nil {
			return fmt.Errorf("%w in %q", err, out)
		}
		peers := 0
		for address, peer := range summary.Peers {
			if peer.Received < least || most > 0 && peer.Received > most {
				return fmt.Errorf("%d routes of %s in router %q", peer.Received, address, dir)
			}
			if peer.Received > 0 || least == 0 {
				peers++
			}
		}
		if peers < len(b.Nodes()) {
			return fmt.Errorf("%d sessions with router %q", peers, dir)
		}
	}
	return nil
}

// settled makes a question that fails until speakers and kube-proxy have used little of a
// processor for three seconds: by then they have programmed the many Services. What else the
// machine does has no part in it.
func (b *bench) settled(ctx context.Context, done func(format string, args ...any)) func() error {
	last, at := 0.0, time.Time{}
	return func() error {
		time.Sleep(3 * time.Second)
		used := 0.0
		for _, n := range b.Nodes() {
			use, err := use(ctx, n, b.processes+"|"+kubeProxy)
			if err != nil {
				return err
			}
			used += use.CPU.Seconds()
		}
		share, known := (used-last)/time.Since(at).Seconds(), !at.IsZero()
		last, at = used, time.Now()
		if known {
			done("waiting for forwarding to be in place: speakers and kube-proxy use %.2f processors", share)
		}
		if !known || share > 0.3 {
			return fmt.Errorf("speakers and kube-proxy use %.2f processors", share)
		}
		return nil
	}
}

// use adds up what those processes of a node use whose command line matches.
func use(ctx context.Context, n *lab.Node, pattern string) (sum process.Use, err error) {
	processes, err := processesOf(ctx, n, pattern)
	if err != nil {
		return sum, err
	}
	for _, p := range processes {
		text, err := n.Exec(ctx, "cat", "/proc/"+p+"/status", "/proc/"+p+"/stat")
		if err != nil {
			return sum, err
		}
		one, err := process.ParseUse(text)
		if err != nil {
			return sum, err
		}
		sum.CPU += one.CPU
		sum.Resident += one.Resident
	}
	return sum, nil
}
