package product

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
)

// WebTCP is the port that the web server listens on for HTTP, webUDP the one for datagrams.
const (
	WebTCP = 8080
	webUDP = 8081
)

// Web is a small web server on every node that tells its name and its client's address.
const Web = "web"

// DeployWeb deploys the web server into a namespace of its own and waits until it is
// ready on every node. It is an error if it is not within five minutes.
func (c *Cluster) DeployWeb(ctx context.Context, namespace string) error {
	labels := map[string]string{"app": Web}
	server := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Web},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)),
					Containers: []corev1.Container{{
						Name: Web, Image: lab.AgnhostImage, ImagePullPolicy: corev1.PullNever,
						Args: []string{"netexec", fmt.Sprintf("--http-port=%d", WebTCP), fmt.Sprintf("--udp-port=%d", webUDP)},
						ReadinessProbe: &corev1.Probe{
							PeriodSeconds: 1,
							ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(WebTCP)}},
						},
					}},
				},
			},
		},
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, server,
	} {
		if err := client.IgnoreAlreadyExists(c.API.Create(ctx, o)); err != nil {
			return err
		}
	}
	_, err := c.Kubectl(ctx, "-n", namespace, "rollout", "status", "daemonset/"+Web, "--timeout=5m")
	return err
}

// WebService is a LoadBalancer Service of the web server. Pool is the pool that it
// asks for; families empty means the cluster's default.
func WebService(namespace, name, pool string, policy corev1.ServiceExternalTrafficPolicy, families ...corev1.IPFamily) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{v1beta1.AnnotationPool: pool}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: policy, Selector: map[string]string{"app": Web},
			IPFamilies: families,
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(WebTCP)},
				{Name: "udp", Port: 81, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(webUDP)},
			},
		},
	}
	if len(families) > 1 {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	return s
}

// Reply is what the web server says: which pod answered, and from which address it
// saw the request come.
type Reply struct {
	Pod    string
	Source netip.Addr
}

// Ask sends one request to an address from a machine of the lab, on a connection of
// its own. An error is that of the connection, or says what the server replied.
func Ask(ctx context.Context, from *lab.Machine, address netip.Addr, port uint16) (Reply, error) {
	// Both questions go over one connection, so that both answers are of one pod.
	transport := &http.Transport{DialContext: from.Dial, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport}
	base := "http://" + net.JoinHostPort(address.String(), fmt.Sprint(port))
	pod, err := lab.Get(ctx, web, base+"/hostname")
	if err != nil {
		return Reply{}, err
	}
	text, err := lab.Get(ctx, web, base+"/clientip")
	if err != nil {
		return Reply{}, err
	}
	source, err := netip.ParseAddrPort(text)
	if err != nil {
		return Reply{}, fmt.Errorf("the server says it was asked by %q: %w", text, err)
	}
	return Reply{Pod: pod, Source: source.Addr().Unmap()}, nil
}
