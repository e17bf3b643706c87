package charts_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testNotes: an upgrade to other classes says how many Services lose what they have, and one beside Cilium in kube-proxy's place
// which mode to set. One where every node is excluded from load balancers, as a single one that has the control plane, says that none announces.
func testNotes(t *testing.T, config *rest.Config) {
	programs, a := helms(t), asAdmin(t, config)
	for name, class := range map[string]*string{"one": nil, "two": nil, "of-a-class": new("example.com/lb"), "never-ours": nil} {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: class, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		a.create(s)
		if name == "never-ours" {
			continue
		}
		s.Status.Conditions = []metav1.Condition{{
			Type: v1beta1.ConditionAllocated, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonAllocated, LastTransitionTime: metav1.Now(),
		}}
		if err := a.Status().Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	notes := func(program, set string) (notes, out string, err error) {
		all, err := a.admin(program)("install", "notes", chart, "--dry-run=server", "--namespace", "default", "--set", "crds.install=false", "--set", set)
		_, notes, _ = strings.Cut(all, "NOTES:")
		return notes, all[max(0, len(all)-2000):], err
	}
	for set, want := range map[string]string{
		"loadBalancerClass=":                                        "1 of the Services",
		"loadBalancerClass=example.com/lb":                          "2 of the Services",
		"loadBalancerClass=example.com/lb,serveUnclassed=true":      "",
		"loadBalancerClass=example.com/another":                     "3 of the Services",
		"loadBalancerClass=example.com/another,serveUnclassed=true": "1 of the Services",
	} {
		for version, program := range programs {
			if version == "helm3" && set != "loadBalancerClass=example.com/lb" {
				continue // once is enough to see that it takes the template
			}
			notes, out, err := notes(program, set)
			if err != nil || strings.Contains(notes, "Cilium") || !strings.Contains(notes, want) || want != "" && !strings.Contains(notes, "\n  default/") || want == "" && strings.Contains(notes, "of the Services that have") {
				t.Errorf("%s with %s: %v, want %q: %s", version, set, err, want, out)
			}
		}
	}
	cilium := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}, Data: map[string]string{"kube-proxy-replacement": "false"}}
	a.create(cilium)
	for _, test := range []struct {
		replacement, mode string
		told              bool
	}{{"false", "nftables", false}, {"true", "nftables", true}, {"true", "none", false}} {
		cilium.Data["kube-proxy-replacement"] = test.replacement
		if err := a.Update(t.Context(), cilium); err != nil {
			t.Fatal(err)
		}
		notes, out, err := notes(programs["helm4"], "forwarding.mode="+test.mode)
		if err != nil || strings.Contains(notes, "set forwarding.mode to none") != test.told {
			t.Errorf("%+v: %v: %s", test, err, out)
		}
	}
	const everyNode = "Every node has the label " + corev1.LabelNodeExcludeBalancers
	for _, test := range []struct {
		node     string
		excluded bool
		ignored  string
		told     bool
	}{{"control-plane", true, "false", true}, {"control-plane", true, "true", false}, {"worker", false, "false", false}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: test.node}}
		if test.excluded {
			node.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
		}
		if err := a.Create(t.Context(), node); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		notes, out, err := notes(programs["helm4"], "speaker.ignoreExcludeLB="+test.ignored)
		if err != nil || strings.Contains(notes, everyNode) != test.told {
			t.Errorf("%+v: %v: %s", test, err, out)
		}
	}
	s390x := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mainframe"}}
	a.create(s390x)
	s390x.Status.NodeInfo.Architecture, s390x.Status.NodeInfo.OperatingSystem = "s390x", "linux"
	if err := a.Status().Update(t.Context(), s390x); err != nil {
		t.Fatal(err)
	}
	for architectures, told := range map[string]bool{"{amd64}": true, "{amd64,s390x}": false, "null": false} {
		notes, out, err := notes(programs["helm4"], "image.architectures="+architectures)
		if err != nil || strings.Contains(notes, "add it to image.architectures:\n\n  mainframe (s390x)") != told {
			t.Errorf("with image.architectures=%s: %v: %s", architectures, err, out)
		}
	}
}
