package charts_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// testPodSecurity creates the pods where a real API server enforces each of the levels of
// https://kubernetes.io/docs/concepts/security/pod-security-standards/. The controller is
// admitted under the strictest one, the speaker under the one that the chart's README names,
// whatever the values; and the speaker is refused for nothing but what it needs.
func testPodSecurity(t *testing.T, config *rest.Config) {
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	levels := []string{"restricted", "baseline", "privileged"}
	for _, level := range levels {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: level, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "latest",
		}}}
		if _, err := api.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// refusal is why a pod is not admitted under a level; "" if it is.
	refusal := func(t *testing.T, level string, template corev1.PodTemplateSpec) string {
		t.Helper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec}
		_, err := api.CoreV1().Pods(level).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		if err == nil {
			return ""
		}
		return err.Error()
	}
	for name, given := range matrix() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := objects(t, given)
			controller := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template
			speaker := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template
			for _, level := range levels {
				if got := refusal(t, level, controller); got != "" {
					t.Errorf("the controller under %s: %s", level, got)
				}
				got := refusal(t, level, speaker)
				if level == "privileged" && got != "" || level != "privileged" && !strings.Contains(got, `violates PodSecurity "`+level) {
					t.Errorf("the speaker under %s: %q", level, got)
				}
			}
			got := causes(refusal(t, "baseline", speaker))
			if diff := cmp.Diff([]string{"host namespaces", "hostPath volumes", "hostPort", "non-default capabilities"}, got); diff != "" {
				t.Errorf("why baseline refuses the speaker (-want +got):\n%s", diff)
			}
		})
	}
}

// causes are what a refusal names, sorted, without the containers and values in parentheses.
func causes(refusal string) []string {
	_, list, _ := strings.Cut(refusal, `:latest": `)
	var all []string
	for reason := range strings.SplitSeq(list, "), ") {
		cause, _, _ := strings.Cut(reason, " (")
		all = append(all, cause)
	}
	return sorted(all)
}
