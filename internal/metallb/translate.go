// Package metallb translates MetalLB's objects into Fairlead's kinds, and reports
// everything that is not the same afterwards: nothing is dropped silently.
//
// It knows no cluster. The API server admits everything that it makes: an object that would
// be refused, or that would apply to more than MetalLB's does, is left out and reported.
package metallb

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"fairlead.dev/fairlead/api/v1beta1"
)

// Group is the API group of MetalLB's kinds.
const Group = "metallb.io"

// Namespaces are those that the two run in.
type Namespaces struct {
	// MetalLB has its objects here, and reads none of others: commonly
	// metallb-system. Objects that name no namespace are taken to be of it.
	MetalLB string
	// Fairlead reads the Secrets of passwords here: commonly fairlead-system.
	Fairlead string
}

// Translation is what became of MetalLB's objects.
type Translation struct {
	Pools []v1beta1.IPAddressPool
	BFD   []v1beta1.BFDProfile
	Peers []v1beta1.BGPPeer
	L2    []v1beta1.L2Advertisement
	BGP   []v1beta1.BGPAdvertisement
	// Communities have the names that the advertisements may write.
	Communities []v1beta1.Community
	// Findings are in the order of the objects: by kind, then by name.
	Findings []Finding
}

// Lost is how many findings tell of something that is lost.
func (t *Translation) Lost() int {
	lost := 0
	for _, f := range t.Findings {
		if f.Weight == Lost {
			lost++
		}
	}
	return lost
}

// Kinds are those of ours that a translation may have, in the order of a [Translation.Manifest].
func Kinds() []string {
	return []string{"IPAddressPool", "BFDProfile", "BGPPeer", "Community", "L2Advertisement", "BGPAdvertisement"}
}

// Manifest is our objects as YAML that kubectl apply takes, those of some kinds or, where
// none is named, all: pools first. An error means that an object cannot be encoded.
func (t *Translation) Manifest(kinds ...string) ([]byte, error) {
	if len(kinds) == 0 {
		kinds = Kinds()
	}
	of := map[string][]any{
		"IPAddressPool": pointers(t.Pools), "BFDProfile": pointers(t.BFD), "BGPPeer": pointers(t.Peers),
		"L2Advertisement": pointers(t.L2), "BGPAdvertisement": pointers(t.BGP), "Community": pointers(t.Communities),
	}
	var objects []any
	for _, kind := range Kinds() {
		if slices.Contains(kinds, kind) {
			objects = append(objects, of[kind]...)
		}
	}
	var documents [][]byte
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		delete(content, "status")
		document, err := yaml.Marshal(content)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	return bytes.Join(documents, []byte("---\n")), nil
}

func pointers[T any](to []T) []any {
	all := make([]any, len(to))
	for i := range to {
		all[i] = &to[i]
	}
	return all
}

// translator is a translation in the making.
type translator struct {
	Translation

	in        Namespaces
	seen      map[string]bool   // kind/name
	community map[string]string // values by name, of names that are written out
	named     map[string]bool   // names that a Community of ours has
	services  serviceUse
}

// order is that in which kinds are translated: what others name comes first.
var order = []string{"IPAddressPool", "BFDProfile", "BGPPeer", "Community", "L2Advertisement", "BGPAdvertisement", "Service"}

// reports are the kinds in which MetalLB and frr-k8s tell how they do; they say nothing of what
// these shall do.
var reports = []string{"ServiceL2Status", "ServiceBGPStatus", "ConfigurationState", "BGPSessionState", "FRRNodeState"}

// Translate translates objects, in any order. Of Services, which may be among them,
// it tells which ask for what only MetalLB knows.
func Translate(objects []unstructured.Unstructured, in Namespaces) *Translation {
	t := &translator{in: in, seen: map[string]bool{}, community: map[string]string{}, named: map[string]bool{}}
	objects = slices.Clone(objects)
	rank := func(u unstructured.Unstructured) int {
		if at := slices.Index(order, u.GetKind()); at >= 0 {
			return at
		}
		return len(order)
	}
	slices.SortStableFunc(objects, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()),
			cmp.Compare(a.GetKind(), b.GetKind()))
	})
	for _, u := range objects {
		t.object(u)
	}
	t.crossReferences()
	t.overall()
	return &t.Translation
}

// object translates one object.
func (t *translator) object(u unstructured.Unstructured) {
	s := &subject{kind: u.GetKind(), name: u.GetName()}
	defer func() { t.Findings = append(t.Findings, s.findings...) }()
	group, _, _ := strings.Cut(u.GetAPIVersion(), "/")
	switch {
	case u.GetKind() == "Service" && u.GetAPIVersion() == "v1":
		s.name = u.GetNamespace() + "/" + u.GetName()
		t.service(s, u)
		return
	case u.GetKind() == "ConfigMap" && u.GetAPIVersion() == "v1" && (slices.Contains(ConfigMaps(), s.name) || isFormer(u)):
		s.configMap(u)
		return
	case u.GetKind() == frrConfiguration && group == GroupFRR:
		s.name = u.GetNamespace() + "/" + u.GetName()
		s.frr(u)
		return
	case slices.Contains(reports, u.GetKind()) && (group == Group || group == GroupFRR):
		return
	case group != Group:
		s.find(Differs, "apiVersion", u.GetAPIVersion(), "not one of MetalLB's kinds: passed over")
		return
	}
	if namespace := u.GetNamespace(); namespace != "" && namespace != t.in.MetalLB {
		s.refuse("metadata.namespace", namespace, "MetalLB only reads objects of its own namespace, which is taken to be %s: if it runs in this one, name it with --metallb-namespace", t.in.MetalLB)
		return
	}
	key := s.kind + "/" + s.name
	if t.seen[key] {
		s.refuse("", nil, "there are two of this kind and name: the first is taken; remove one of them")
		return
	}
	t.seen[key] = true
	t.ours(s, u)
}

// ours translates an object that MetalLB reads.
func (t *translator) ours(s *subject, u unstructured.Unstructured) {
	meta := s.metadata(u)
	switch s.kind {
	case "IPAddressPool":
		convert(s, u, &t.Pools, func(spec poolSpec) v1beta1.IPAddressPool {
			return v1beta1.IPAddressPool{TypeMeta: typeMeta(s.kind), ObjectMeta: meta, Spec: s.pool(spec)}
		})
	case "BGPPeer":
		convert(s, u, &t.Peers, func(spec peerSpec) v1beta1.BGPPeer {
			return v1beta1.BGPPeer{TypeMeta: typeMeta(s.kind), ObjectMeta: meta, Spec: s.peer(spec, t.in)}
		})
	case "L2Advertisement":
		convert(s, u, &t.L2, func(spec l2Spec) v1beta1.L2Advertisement {
			return v1beta1.L2Advertisement{TypeMeta: typeMeta(s.kind), ObjectMeta: meta, Spec: s.l2(spec)}
		})
	case "BGPAdvertisement":
		convert(s, u, &t.BGP, func(spec bgpSpec) v1beta1.BGPAdvertisement {
			return v1beta1.BGPAdvertisement{TypeMeta: typeMeta(s.kind), ObjectMeta: meta, Spec: s.bgp(spec, t)}
		})
	case "Community":
		convert(s, u, &t.Communities, func(spec communitySpec) v1beta1.Community {
			return v1beta1.Community{TypeMeta: typeMeta(s.kind), ObjectMeta: meta, Spec: s.aliases(spec, t)}
		})
	case "BFDProfile":
		convert(s, u, &t.BFD, func(spec bfdSpec) v1beta1.BFDProfile {
			return v1beta1.BFDProfile{TypeMeta: typeMeta(s.kind), ObjectMeta: meta, Spec: s.bfd(spec)}
		})
	default:
		s.lose("apiVersion", u.GetAPIVersion(), "a kind that is not known here: say in our kinds what it says (an AddressPool, which MetalLB has had no more since v0.14, in an IPAddressPool and an advertisement)")
	}
}

// convert reads an object of MetalLB's and adds what it is in our kinds, unless either
// step refuses it.
func convert[Spec, T any](s *subject, u unstructured.Unstructured, to *[]T, of func(Spec) T) {
	spec := read[Spec](s, u)
	if s.refused {
		return
	}
	if object := of(spec); !s.refused {
		*to = append(*to, object)
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: kind}
}

// metadata keeps name and labels, by which others refer to the object.
func (s *subject) metadata(u unstructured.Unstructured) metav1.ObjectMeta {
	if problems := validation.IsDNS1123Subdomain(s.name); len(problems) > 0 {
		s.refuse("metadata.name", s.name, "not the name of an object: %s", problems[0])
	}
	labels := u.GetLabels()
	if errs := metavalidation.ValidateLabels(labels, field.NewPath("metadata", "labels")); len(errs) > 0 {
		s.refuse("metadata.labels", labels, "%s", errs[0].ErrorBody())
	}
	var annotations []string
	for key := range u.GetAnnotations() {
		if key != "kubectl.kubernetes.io/last-applied-configuration" {
			annotations = append(annotations, key)
		}
	}
	if slices.Sort(annotations); len(annotations) > 0 {
		s.find(Differs, "metadata.annotations", annotations, "left out, since they are for the tools that made the object; add back what you need")
	}
	return metav1.ObjectMeta{Name: s.name, Labels: labels}
}

// read reads the spec of an object. What MetalLB has and we do not know is lost;
// what cannot be read refuses the object.
func read[T any](s *subject, u unstructured.Unstructured) T {
	var into struct {
		Spec T `json:"spec"`
	}
	content := map[string]any{}
	if u.Object["spec"] != nil {
		content["spec"] = u.Object["spec"]
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, &into, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, unknown := range strict.Errors() {
			path := strings.Trim(strings.TrimPrefix(unknown.Error(), "unknown field "), `"`)
			value, _, _ := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
			if strings.Contains(strings.ToLower(path), "password") {
				value = nil
			}
			s.lose(path, value, "a field that is not known here; see in MetalLB's documentation what it does, and whether you need it")
		}
	} else if err != nil {
		s.refuse("spec", nil, "cannot be read (%v): MetalLB does not take it either", err)
	}
	return into.Spec
}

// crossReferences tells of names that nothing of ours has.
func (t *translator) crossReferences() {
	pools, peers := map[string]bool{}, map[string]bool{}
	for _, p := range t.Pools {
		pools[p.Name] = true
	}
	for _, p := range t.Peers {
		peers[p.Name] = true
	}
	missing := func(kind, name, path string, names []string, known map[string]bool) {
		s := &subject{kind: kind, name: name}
		for _, n := range names {
			if !known[n] {
				s.find(Step, path, n, "there is no such object in what is printed: make it, or put another name in its place (without any name, all are meant)")
			}
		}
		t.Findings = append(t.Findings, s.findings...)
	}
	t.profiles()
	for _, a := range t.L2 {
		missing(a.Kind, a.Name, "spec.ipAddressPools", a.Spec.IPAddressPools, pools)
	}
	for _, a := range t.BGP {
		missing(a.Kind, a.Name, "spec.ipAddressPools", a.Spec.IPAddressPools, pools)
		missing(a.Kind, a.Name, "spec.peers", a.Spec.Peers, peers)
	}
	t.services.tell(t, pools)
}

// profiles tells of peers whose BFDProfile is not printed.
func (t *translator) profiles() {
	for _, p := range t.Peers {
		known := slices.ContainsFunc(t.BFD, func(b v1beta1.BFDProfile) bool { return b.Name == p.Spec.BFDProfile })
		if p.Spec.BFDProfile != "" && !known {
			s := &subject{kind: p.Kind, name: p.Name}
			s.find(Step, "spec.bfdProfile", p.Spec.BFDProfile, "there is no such BFDProfile in what is printed: make it, or take the name out; until then there is no BFD")
			t.Findings = append(t.Findings, s.findings...)
		}
	}
}

// overall tells once what holds for all objects of a kind.
func (t *translator) overall() {
	if len(t.Pools) > 0 {
		s := &subject{kind: "IPAddressPool"}
		s.find(Differs, "spec.addresses", nil, "when an edit takes an address in use out of a pool, its Service keeps it, while MetalLB gives it another: set onPoolChange to %s for that", v1beta1.PoolChangeRenumber)
		t.Findings = append(t.Findings, s.findings...)
	}
}
