package faults

import (
	"context"
	"crypto/x509"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
	"fairlead.dev/fairlead/e2e/product"
)

const (
	webs = "webs" // has the Services that are watched, and a web server on every node
	evil = "evil" // is the tenant's
	// secretKey is the share key of the Service that is watched.
	secretKey = "s3cret-of-the-victim-8f1c"
	// turning is a Service of which one node's web server is the endpoint, and then another's.
	turning = "turning"
)

// kit is a cluster in which faults happen.
type kit struct {
	*product.Cluster
	backend backend
	api     *apiServer
	admin   kubernetes.Interface
	roots   *x509.CertPool // of the cluster
	tenant  client.Client  // may edit the namespace evil
	stalls  *probe.Stalls

	layer2  []netip.Addr // the addresses of a Service, of both families
	routed  []netip.Addr // and of one that is announced by BGP
	homes   []*lab.Node  // that answer for layer2 when nothing is wrong
	pods    []corev1.Pod // the web servers, one on each node, in the order of the nodes
	turns   int
	turning netip.Addr
	// sinceBackup is the address of a Service that came after the last backup.
	sinceBackup netip.Addr
	// beside checks what a copy of the cluster, which is on the LAN, believes.
	beside func(ctx context.Context) error

	// Of the fault that lasts.
	absent *lab.Node // has no link
	silent *lab.Node // its pulse has stopped
	deaf   *lab.Node // its agent has stopped
}

func (k *kit) reset() { k.absent, k.silent, k.deaf = nil, nil, nil }

// install installs Fairlead, which reaches the API server through what spoils its answers, and exposes what is watched.
func (k *kit) install(ctx context.Context) error {
	config, err := k.RESTConfig()
	if err != nil {
		return err
	}
	if k.admin, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	k.roots = x509.NewCertPool()
	k.roots.AppendCertsFromPEM(config.CAData)
	config = rest.CopyConfig(config)
	config.Impersonate.UserName, config.WarningHandler = "tenant", rest.NoWarnings{}
	if k.tenant, err = client.New(config, client.Options{Scheme: k.API.Scheme()}); err != nil {
		return err
	}
	if err := k.LoadImage(ctx); err != nil {
		return err
	}
	err = k.Install(ctx, 3, fmt.Sprintf("apiServer.port=%d", apiPort),
		"controller.apiServer.host="+k.ControlPlane.IPv4.String(), fmt.Sprintf("controller.apiServer.port=%d", apiPort),
		"forwarding.mode="+k.backend.mode(),
		"forwarding.externalIPs=All", // no rule about addresses is to be what keeps the cluster alive
		"speaker.hello.damping=0s")   // a node may be the victim again and again
	if err != nil {
		return err
	}
	if err := k.used(ctx); err != nil {
		return err
	}
	if err := k.Sample(ctx, "pool.yaml", "l2advertisement.yaml", "bgpadvertisement.yaml", "bgppeer.yaml"); err != nil {
		return err
	}
	// Patient, as a busy machine is late now and then.
	patient := &v1beta1.BFDProfile{ObjectMeta: name("patient"), Spec: v1beta1.BFDProfileSpec{
		ReceiveInterval: 1000, TransmitInterval: 1000, DetectMultiplier: 3,
	}}
	if err := k.API.Create(ctx, patient); err != nil {
		return err
	}
	if _, err := k.Kubectl(ctx, "patch", "bgppeer", "router", "--type=merge", "-p", `{"spec":{"bfdProfile":"patient"}}`); err != nil {
		return err
	}
	return k.populate(ctx)
}

// populate deploys the web servers, the Services and the tenant.
func (k *kit) populate(ctx context.Context) error {
	for _, namespace := range []string{webs, evil} {
		if err := k.DeployWeb(ctx, namespace); err != nil {
			return err
		}
	}
	err := k.API.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: evil, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	})
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := k.API.List(ctx, &pods, client.InNamespace(webs)); err != nil {
		return err
	}
	k.pods = pods.Items
	slices.SortFunc(k.pods, func(a, b corev1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	const everyone = corev1.ServiceExternalTrafficPolicyCluster
	for addresses, s := range map[*[]netip.Addr]*corev1.Service{
		&k.layer2: product.WebService(webs, "layer2", "layer2", everyone, corev1.IPv4Protocol, corev1.IPv6Protocol),
		&k.routed: product.WebService(webs, "routed", "bgp", everyone, corev1.IPv4Protocol, corev1.IPv6Protocol),
	} {
		s.Annotations[v1beta1.AnnotationShareKey] = secretKey
		if *addresses, err = k.expose(ctx, s, 2); err != nil {
			return err
		}
	}
	for _, vip := range k.layer2 {
		home, err := k.Answerer(ctx, vip)
		if err != nil {
			return err
		}
		k.homes = append(k.homes, home)
	}
	return k.prepareTurning(ctx)
}

// expose creates a Service and waits until it has so many addresses.
func (k *kit) expose(ctx context.Context, s *corev1.Service, n int) (addresses []netip.Addr, err error) {
	if err := k.API.Create(ctx, s); err != nil {
		return nil, err
	}
	err = lab.Until(ctx, func() error {
		addresses, err = k.Addresses(ctx, client.ObjectKeyFromObject(s), n)
		return err
	})
	return addresses, err
}

// prepareTurning creates a Service whose endpoints are written by hand.
func (k *kit) prepareTurning(ctx context.Context) error {
	s := product.WebService(webs, turning, "", "")
	s.Spec.Type, s.Spec.Selector, s.Spec.Ports = corev1.ServiceTypeClusterIP, nil, s.Spec.Ports[:1]
	if err := k.API.Create(ctx, s); err != nil {
		return err
	}
	k.turning = netip.MustParseAddr(s.Spec.ClusterIP)
	return k.API.Create(ctx, k.turningSlice())
}

// turn is the pod whose turn it is, on a node that is there.
func (k *kit) turn() corev1.Pod {
	there := slices.DeleteFunc(slices.Clone(k.pods), func(p corev1.Pod) bool { return k.absent != nil && p.Spec.NodeName == k.absent.Name })
	return there[k.turns%2]
}

// turningSlice has the pod whose turn it is.
func (k *kit) turningSlice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: webs, Name: turning, Labels: map[string]string{discoveryv1.LabelServiceName: turning},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(product.WebTCP)), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{k.turn().Status.PodIP}}},
	}
}

// follow changes the endpoint of a Service, and waits until every node sends there. It is an error if one does not
// in time.
func (k *kit) follow(ctx context.Context, limit time.Duration) error {
	k.turns++
	if err := k.API.Update(ctx, k.turningSlice()); err != nil {
		return err
	}
	began := time.Now()
	want := k.turn().Name
	for _, n := range k.Nodes() {
		if n == k.absent || n == k.deaf {
			continue
		}
		ctx, cancel := context.WithDeadlineCause(ctx, began.Add(limit), fmt.Errorf("not within %v", limit))
		err := lab.Until(ctx, func() error {
			reply, err := k.hostname(ctx, n.Machine, netip.AddrPortFrom(k.turning, 80))
			if err == nil && reply != want {
				err = fmt.Errorf("%s answers, want %s", reply, want)
			}
			return err
		})
		cancel()
		if err != nil {
			return fmt.Errorf("%s does not follow a change of endpoints: %w", n.Name, err)
		}
	}
	return nil
}

// hostname asks a web server for its name, on a connection of its own.
func (k *kit) hostname(ctx context.Context, from *lab.Machine, at netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return from.Get(ctx, fmt.Sprintf("http://%s/hostname", at))
}

func name(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: n} }

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum64()
}
