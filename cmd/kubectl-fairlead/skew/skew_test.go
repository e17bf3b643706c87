package skew

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(component, node string, images ...string) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/component": component}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	for i, image := range images {
		name := component
		if i > 0 {
			name = "pulse"
		}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: image})
	}
	return p
}

func TestReport(t *testing.T) {
	set := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fairlead-system", Labels: map[string]string{"helm.sh/chart": "fairlead-0.1.0"},
	}}
	const was, is = "localhost:5000/fairlead:0.1.0", "localhost:5000/fairlead:0.2.0@sha256:00"
	for name, c := range map[string]struct {
		sets []appsv1.DaemonSet
		pods []corev1.Pod
		want []string // in lines
		skew bool
	}{
		"all one": {
			sets: []appsv1.DaemonSet{set},
			pods: []corev1.Pod{pod("controller", "a", was), pod("speaker", "a", was, was), pod("speaker", "b", was, was)},
			want: []string{"chart 0.1.0 fairlead-system", "controller 0.1.0 a", "speaker 0.1.0 a, b", "speaker/pulse 0.1.0 a, b"},
		},
		"half way": {
			sets: []appsv1.DaemonSet{set},
			pods: []corev1.Pod{pod("controller", "", is), pod("speaker", "a", was, was), pod("speaker", "b", is, is)},
			want: []string{"controller 0.2.0 no node yet", "speaker 0.1.0 a", "speaker 0.2.0 b", "skew: there are 0.1.0, 0.2.0; wait"},
			skew: true,
		},
		"no Fairlead": {want: []string{"kubectl-fairlead 0.1.0 here", "Fairlead is not installed"}},
	} {
		t.Run(name, func(t *testing.T) {
			said := report("0.1.0", c.sets, c.pods)
			words := strings.Join(strings.Fields(said), " ")
			for _, want := range c.want {
				if !strings.Contains(words, want) {
					t.Errorf("it lacks %q:\n%s", want, said)
				}
			}
			if strings.Contains(said, "skew:") != c.skew {
				t.Errorf("skew is wrong:\n%s", said)
			}
		})
	}
}

func TestTag(t *testing.T) {
	for image, want := range map[string]string{
		"fairlead": "latest", "localhost:5000/fairlead": "latest", "localhost:5000/fairlead:0.1.0": "0.1.0",
		"r/fairlead:0.1.0@sha256:00": "0.1.0", "r/fairlead@sha256:00": "sha256:00",
	} {
		if got := tag(image); got != want {
			t.Errorf("tag(%q) = %q, want %q", image, got, want)
		}
	}
}
