package v1beta1_test

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/admission"
)

// samples are the objects of config/samples.
type samples struct {
	pools    map[string]*v1beta1.IPAddressPool
	l2       map[string]*v1beta1.L2Advertisement
	bgp      map[string]*v1beta1.BGPAdvertisement
	peers    map[string]*v1beta1.BGPPeer
	profiles map[string]*v1beta1.BFDProfile
	services map[string]*corev1.Service
	booked   map[string]*v1beta1.IPReservation
	names    map[string]*v1beta1.Community
}

// TestSamples takes every sample as the API server would, and holds that the
// names they mention are those of other samples: together they are a setup that works.
func TestSamples(t *testing.T) {
	t.Parallel()
	s := readSamples(t)
	for name, a := range s.l2 {
		checkNames(t, "L2Advertisement/"+name, a.Spec.IPAddressPools, s.pools)
	}
	for name, a := range s.bgp {
		checkNames(t, "BGPAdvertisement/"+name, a.Spec.IPAddressPools, s.pools)
		checkNames(t, "BGPAdvertisement/"+name, a.Spec.Peers, s.peers)
	}
	for name, p := range s.peers {
		if p.Spec.BFDProfile != "" {
			checkNames(t, "BGPPeer/"+name, []string{p.Spec.BFDProfile}, s.profiles)
		}
	}
	for name, r := range s.booked {
		checkNames(t, "IPReservation/"+name, []string{r.Spec.Pool}, s.pools)
	}
	policies := map[corev1.ServiceExternalTrafficPolicy]bool{}
	for name, service := range s.services {
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			t.Errorf("Service/%s: type %s", name, service.Spec.Type)
		}
		policies[service.Spec.ExternalTrafficPolicy] = true
		for annotation, value := range service.Annotations {
			switch annotation {
			case v1beta1.AnnotationPool:
				checkNames(t, "Service/"+name, []string{value}, s.pools)
			case v1beta1.AnnotationReservation:
				checkNames(t, "Service/"+name, []string{value}, s.booked)
			case v1beta1.AnnotationAddresses:
				checkAddresses(t, "Service/"+name, value, s.pools)
			default:
				t.Errorf("Service/%s: unknown annotation %s", name, annotation)
			}
		}
	}
	if !policies[corev1.ServiceExternalTrafficPolicyLocal] || !policies[corev1.ServiceExternalTrafficPolicyCluster] {
		t.Errorf("the Services show the external traffic policies %v, want both", slices.Collect(maps.Keys(policies)))
	}
	if len(s.pools) == 0 || len(s.l2) == 0 || len(s.bgp) == 0 || len(s.peers) == 0 || len(s.profiles) == 0 || len(s.booked) == 0 || len(s.names) == 0 {
		t.Error("a kind has no sample")
	}
}

func readSamples(t *testing.T) samples {
	t.Helper()
	s := samples{
		pools: map[string]*v1beta1.IPAddressPool{}, l2: map[string]*v1beta1.L2Advertisement{},
		bgp: map[string]*v1beta1.BGPAdvertisement{}, peers: map[string]*v1beta1.BGPPeer{},
		profiles: map[string]*v1beta1.BFDProfile{},
		services: map[string]*corev1.Service{}, booked: map[string]*v1beta1.IPReservation{}, names: map[string]*v1beta1.Community{},
	}
	paths, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			object := admission.Parse(t, document)
			kind, _ := object["kind"].(string)
			if kind != "Service" {
				errs, unknown := admissionOf(t, kind).Admit(t, object)
				if len(errs) > 0 || len(unknown) > 0 {
					t.Errorf("%s: %v, unknown fields %q", path, errs.ToAggregate(), unknown)
				}
			}
			switch kind {
			case "IPAddressPool":
				read(t, document, s.pools)
			case "IPReservation":
				read(t, document, s.booked)
			case "L2Advertisement":
				read(t, document, s.l2)
			case "BGPAdvertisement":
				read(t, document, s.bgp)
			case "BGPPeer":
				read(t, document, s.peers)
			case "Community":
				read(t, document, s.names)
			case "BFDProfile":
				read(t, document, s.profiles)
			case "Service":
				read(t, document, s.services)
			}
		}
	}
	return s
}

// read decodes a document into its Go type, where no field may be unknown, and
// files it under its name.
func read[T any, P interface {
	*T
	GetName() string
}](t *testing.T, document string, into map[string]P) {
	t.Helper()
	object := P(new(T))
	if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
		t.Fatal(err)
	}
	if into[object.GetName()] != nil {
		t.Errorf("there are two samples named %s", object.GetName())
	}
	into[object.GetName()] = object
}

func checkNames[T any](t *testing.T, object string, names []string, known map[string]T) {
	t.Helper()
	for _, name := range names {
		if _, ok := known[name]; !ok {
			t.Errorf("%s names %q, of which there is no sample", object, name)
		}
	}
}

func checkAddresses(t *testing.T, object, value string, pools map[string]*v1beta1.IPAddressPool) {
	t.Helper()
	for text := range strings.SplitSeq(value, ",") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			t.Errorf("%s: %v", object, err)
			continue
		}
		held := false
		for _, pool := range pools {
			for _, entry := range pool.Spec.Addresses {
				r, err := addr.ParseRange(entry)
				held = held || err == nil && r.Contains(a)
			}
		}
		if !held {
			t.Errorf("%s asks for %s, which no sample pool holds", object, a)
		}
	}
}
