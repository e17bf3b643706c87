// Package mirror keeps what the controller and the speakers know alike of a cluster: the views of
// Fairlead's own kinds, which are read once for each change, and the endpoints of Services.
package mirror

import (
	"net/netip"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// Config mirrors the objects that configure Fairlead. It is not for several goroutines at once.
type Config struct {
	Pools             Kind[*v1beta1.IPAddressPool, *view.Pool]
	L2Advertisements  Kind[*v1beta1.L2Advertisement, *view.L2Advertisement]
	BGPAdvertisements Kind[*v1beta1.BGPAdvertisement, *view.BGPAdvertisement]
	BGPPeers          Kind[*v1beta1.BGPPeer, *v1beta1.BGPPeer] // Fill reads them: they need Secrets
	BFDProfiles       Kind[*v1beta1.BFDProfile, *view.BFDProfile]
	Communities       Kind[*v1beta1.Community, *view.Community]
	Secrets           map[string]*corev1.Secret // of Fairlead's namespace
	ServiceCIDRs      map[string][]netip.Prefix
}

// NewConfig returns a mirror without objects.
func NewConfig() Config {
	return Config{
		Pools: newKind(fromkube.Pool), L2Advertisements: newKind(fromkube.L2Advertisement),
		BGPAdvertisements: newKind(fromkube.BGPAdvertisement), BGPPeers: newKind(brief),
		BFDProfiles: newKind(fromkube.BFDProfile), Communities: newKind(fromkube.Community),
		Secrets: map[string]*corev1.Secret{}, ServiceCIDRs: map[string][]netip.Prefix{},
	}
}

// Fill replaces in a snapshot all that the mirror has, and the problems.
func (m *Config) Fill(c *view.Cluster) {
	c.Problems = nil
	c.Pools = fill(c, &m.Pools)
	c.L2Advertisements = fill(c, &m.L2Advertisements)
	c.BGPAdvertisements = fill(c, &m.BGPAdvertisements)
	c.BFDProfiles = fill(c, &m.BFDProfiles)
	c.Communities = fill(c, &m.Communities)
	c.BGPPeers = make(map[string]*view.BGPPeer, len(m.BGPPeers.views))
	for name, p := range m.BGPPeers.views {
		peer, problems := fromkube.BGPPeer(p.value, func(name string) (*corev1.Secret, bool) {
			s, ok := m.Secrets[name]
			return s, ok
		})
		c.BGPPeers[name], c.Problems = peer, append(c.Problems, problems...)
	}
	c.ServiceRanges = view.JoinRanges(m.ServiceCIDRs)
}

func fill[O, V any](c *view.Cluster, k *Kind[O, V]) map[string]V {
	views := make(map[string]V, len(k.views))
	for name, r := range k.views {
		views[name], c.Problems = r.value, append(c.Problems, r.problems...)
	}
	return views
}

// brief leaves out of a BGPPeer what changes without changing its view.
func brief(p *v1beta1.BGPPeer) (*v1beta1.BGPPeer, []problem.Problem) {
	return &v1beta1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, CreationTimestamp: p.CreationTimestamp}, Spec: p.Spec,
	}, nil
}

// Kind mirrors the objects of one kind by name.
type Kind[O, V any] struct {
	Objects map[string]O
	read    func(O) (V, []problem.Problem)
	views   map[string]reading[V]
}

// reading is what was read of an object.
type reading[V any] struct {
	value    V
	problems []problem.Problem
}

func newKind[O, V any](read func(O) (V, []problem.Problem)) Kind[O, V] {
	return Kind[O, V]{map[string]O{}, read, map[string]reading[V]{}}
}

// Set takes over an object, or that it is gone, and reports whether its view changed. A view that did not
// keeps its pointer.
func (k *Kind[O, V]) Set(key client.ObjectKey, object O, present bool) bool {
	before, had := k.views[key.Name]
	if !present {
		delete(k.Objects, key.Name)
		delete(k.views, key.Name)
		return had
	}
	k.Objects[key.Name] = object
	value, problems := k.read(object)
	now := reading[V]{value, problems}
	if had && reflect.DeepEqual(before, now) {
		return false
	}
	k.views[key.Name] = now
	return true
}
