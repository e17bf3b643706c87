package bgp

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
	"fairlead.dev/fairlead/speaker/desired"
)

// objects has both nodes do what objects of Kubernetes say, in place of what announce and node said: objects FILE ... [but TEXT].
// Node 1 is in rack left, node 2 in rack right; each Service has an endpoint on both. But says what is wrong with them.
func (s *scene) objects(args []string) {
	wrong := ""
	if at := slices.Index(args, "but"); at >= 0 && at+2 == len(args) {
		args, wrong = args[:at], args[at+1]
	}
	c := s.cluster()
	c.Nodes["node1"].Labels, c.Nodes["node2"].Labels = map[string]string{"rack": "left"}, map[string]string{"rack": "right"}
	c.Services, c.Endpoints = map[view.Ref]*view.Service{}, view.Endpoints{}
	c.Pools, c.Communities = map[string]*view.Pool{}, map[string]*view.Community{}
	c.BGPPeers, c.BGPAdvertisements = map[string]*view.BGPPeer{}, map[string]*view.BGPAdvertisement{}
	secrets := map[string]*corev1.Secret{}
	var texts []string
	for _, file := range args {
		texts = append(texts, strings.Split(s.meant([]string{s.read(file)})[0], "\n---\n")...)
	}
	for _, text := range texts {
		s.secret(secrets, text)
	}
	var problems []problem.Problem
	for _, text := range texts {
		problems = append(problems, s.object(c, secrets, text)...)
	}
	for i, n := range s.nodes {
		name := "node" + strconv.Itoa(i+1)
		node, found := desired.NewEngine(desired.Options{Node: name, Pods: desired.PodDetection{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd10::/64")}}}).Decide(c)
		problems = append(problems, found...)
		sessions := map[string]desired.Session{}
		for peer, session := range node.BGP {
			if !session.Identity.SourceAddress.IsValid() { // both nodes are on one machine here
				session.Identity.SourceAddress = sameFamily(session.Identity.PeerAddress, session.Identity.NextHop4, session.Identity.NextHop6)
			}
			sessions[peer] = session
		}
		n.start()
		n.change(func() {
			n.identity = desired.Identity{}
			clear(n.others)
			maps.Copy(n.others, sessions)
		})
	}
	s.judge(problems, wrong)
}

// sameFamily is the one of the address's family.
func sameFamily(address, four, six netip.Addr) netip.Addr {
	if address.Is4() {
		return four
	}
	return six
}

// judge fails the script unless this is what is wrong, and nothing else; "" for nothing.
func (s *scene) judge(problems []problem.Problem, wrong string) {
	if len(problems) == 0 && wrong != "" {
		s.fail("nothing is wrong, and %q should be", wrong)
	}
	for _, p := range problems {
		if wrong == "" || !strings.Contains(p.Message, wrong) {
			s.fail("%v", p)
		}
	}
}

// secret adds a Secret to those of Fairlead's namespace. The API server makes data of stringData.
func (s *scene) secret(secrets map[string]*corev1.Secret, text string) {
	var kind metav1.TypeMeta
	s.decode(text, &kind)
	if kind.Kind != "Secret" {
		return
	}
	var o corev1.Secret
	s.decodeStrictly(text, &o)
	o.Data = map[string][]byte{}
	for key, value := range o.StringData {
		o.Data[key] = []byte(value)
	}
	secrets[o.Name] = &o
}

// object adds one to the cluster.
func (s *scene) object(c *view.Cluster, secrets map[string]*corev1.Secret, text string) (problems []problem.Problem) {
	var kind metav1.TypeMeta
	s.decode(text, &kind)
	switch kind.Kind {
	case "IPAddressPool":
		var o v1beta1.IPAddressPool
		s.decodeStrictly(text, &o)
		c.Pools[o.Name], problems = fromkube.Pool(&o)
	case "BGPAdvertisement":
		var o v1beta1.BGPAdvertisement
		s.decodeStrictly(text, &o)
		c.BGPAdvertisements[o.Name], problems = fromkube.BGPAdvertisement(&o)
	case "BGPPeer":
		var o v1beta1.BGPPeer
		s.decodeStrictly(text, &o)
		c.BGPPeers[o.Name], problems = fromkube.BGPPeer(&o, func(name string) (*corev1.Secret, bool) { found, there := secrets[name]; return found, there })
	case "Community":
		var o v1beta1.Community
		s.decodeStrictly(text, &o)
		c.Communities[o.Name], problems = fromkube.Community(&o)
	case "Secret": // was read before
	case "Service":
		var o corev1.Service
		s.decodeStrictly(text, &o)
		s.serve(c, &o)
	default:
		s.fail("objects of kind %q are not known here", kind.Kind)
	}
	return problems
}

// serve adds a Service at the addresses of its status, with an endpoint of each family on each node.
func (s *scene) serve(c *view.Cluster, o *corev1.Service) {
	service := &view.Service{
		Ref: view.Ref{Name: o.Name}, Type: view.LoadBalancer, Labels: o.Labels, Ports: []view.ServicePort{{Protocol: view.TCP, Port: 80}},
		ExternalLocal: o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
	}
	for _, ingress := range o.Status.LoadBalancer.Ingress {
		address, err := netip.ParseAddr(ingress.IP)
		if err != nil {
			s.fail("Service %s: %v", o.Name, err)
		}
		service.VIPs = append(service.VIPs, address)
	}
	var endpoints []view.Endpoint
	for _, f := range s.families() {
		service.ClusterIPs = append(service.ClusterIPs, podOf(f, 9, byte(len(c.Services)+1)))
		for number := range byte(2) {
			endpoints = append(endpoints, view.Endpoint{
				Addr: podOf(f, number+1, 1), Node: "node" + strconv.Itoa(int(number+1)), Ready: true, Serving: true,
				Ports: []view.EndpointPort{{Protocol: view.TCP, Port: 8080}},
			})
		}
	}
	c.Services[service.Ref] = service
	c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{service.Ref: endpoints})
}

func (s *scene) decode(text string, into any) {
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		s.fail("%v in\n%s", err, text)
	}
}

func (s *scene) decodeStrictly(text string, into any) {
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		s.fail("%v in\n%s", err, text)
	}
}
