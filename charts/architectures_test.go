package charts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// A node for whose architecture there is no image gets no pod, which would only fail there, again and again.
func TestNodesOfOtherArchitecturesGetNoPod(t *testing.T) {
	t.Parallel()
	zone := values{"requiredDuringSchedulingIgnoredDuringExecution": values{"nodeSelectorTerms": []any{
		values{"matchExpressions": []any{values{"key": "zone", "operator": "Exists"}}},
	}}}
	released := []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64", "arm64"}}}
	for name, c := range map[string]struct {
		values              values
		speaker, controller []corev1.NodeSelectorRequirement
	}{
		"default": {nil, released, released},
		"an image of one's own": {
			values{"image": values{"architectures": []any{"s390x"}}},
			[]corev1.NodeSelectorRequirement{{Key: "kubernetes.io/arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"s390x"}}},
			[]corev1.NodeSelectorRequirement{{Key: "kubernetes.io/arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"s390x"}}},
		},
		"all": {values{"image": values{"architectures": []any{}}}, nil, nil},
		"an affinity of one's own": {
			values{"controller": values{"affinity": values{"nodeAffinity": zone}}},
			released,
			[]corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}},
		},
		"an affinity to pods": {values{"controller": values{"affinity": values{"podAffinity": values{}}}}, released, released},
	} {
		all := objects(t, c.values)
		speaker := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template.Spec
		controller := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template.Spec
		if diff := cmp.Diff(c.speaker, required(speaker)); diff != "" {
			t.Errorf("%s: the speaker (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.controller, required(controller)); diff != "" {
			t.Errorf("%s: the controller (-want +got):\n%s", name, diff)
		}
	}
}

// required is what a pod wants of a node besides its nodeSelector, of which there is one term.
func required(pod corev1.PodSpec) []corev1.NodeSelectorRequirement {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return nil
	}
	return pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions
}
