package charts_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// With metrics.secure no port of a program shows metrics without TLS but to the node itself, and the programs may have the readers reviewed.
func TestSecureMetrics(t *testing.T) {
	t.Parallel()
	plain := objects(t, nil)
	all := objects(t, values{"metrics": values{"secure": true, "certificateSecret": "of-cert-manager"}})
	speaker := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template
	controller := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template
	for _, pod := range []corev1.PodTemplateSpec{speaker, controller} {
		c, volume := pod.Spec.Containers[0], slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "metrics-certificate" })
		if volume < 0 || pod.Spec.Volumes[volume].Secret.SecretName != "of-cert-manager" || !*pod.Spec.Volumes[volume].Secret.Optional {
			t.Fatalf("%s has the volumes %+v", c.Name, pod.Spec.Volumes)
		}
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "metrics-certificate" && m.ReadOnly && slices.Contains(c.Args, "--metrics-certificate-dir="+m.MountPath)
		})
		if !mounted || !slices.Contains(c.Args, "--metrics-secure") || pod.Annotations["prometheus.io/scheme"] != "https" {
			t.Errorf("%s: %q, %+v, %v", c.Name, c.Args, c.VolumeMounts, pod.Annotations)
		}
	}
	agent, pulse := speaker.Spec.Containers[0], speaker.Spec.Containers[1]
	if agent.ReadinessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS || pulse.ReadinessProbe.HTTPGet.Host != "127.0.0.1" || pulse.ReadinessProbe.HTTPGet.Scheme != "" ||
		!slices.Contains(agent.Args, "--pulse-metrics-address=127.0.0.1:7476") || !slices.Contains(pulse.Args, "--metrics-bind-address=127.0.0.1:7476") {
		t.Errorf("%+v %q, %+v %q", agent.ReadinessProbe, agent.Args, pulse.ReadinessProbe, pulse.Args)
	}
	reviews := one[*rbacv1.ClusterRoleBinding](t, all, "fairlead-metrics-reviews")
	if reviews.RoleRef.Name != "system:auth-delegator" || len(reviews.Subjects) != 2 || one[*rbacv1.ClusterRole](t, all, "fairlead-metrics-reader").Rules[0].NonResourceURLs[0] != "/metrics" {
		t.Errorf("%+v", reviews)
	}
	if slices.ContainsFunc(plain, func(o client.Object) bool { return strings.HasPrefix(o.GetName(), "fairlead-metrics") }) {
		t.Error("without it there are rights to review")
	}
}

// With metrics.enabled false no program serves any, no annotation has them read, and readiness is as before.
func TestNoMetrics(t *testing.T) {
	t.Parallel()
	off := values{"metrics": values{"enabled": false}}
	all := objects(t, off)
	speaker := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template
	controller := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template
	for _, pod := range []corev1.PodTemplateSpec{speaker, controller} {
		for _, c := range pod.Spec.Containers {
			if !slices.Contains(c.Args, "--metrics-off") || c.ReadinessProbe == nil || pod.Annotations["prometheus.io/scrape"] != "" {
				t.Errorf("%s: %q, %v, %v", c.Name, c.Args, c.ReadinessProbe, pod.Annotations)
			}
		}
	}
	off["metrics"].(values)["podMonitor"] = values{"enabled": true}
	if out, err := helm(t, helms(t)["helm4"], off, "template", "fairlead", chart); err == nil || !strings.Contains(err.Error(), "metrics.enabled is false") {
		t.Errorf("a PodMonitor of nothing: %v\n%s", err, out)
	}
}

// A Prometheus finds what it needs for all containers: TLS, a token that the release has, and the path of pulse.
func TestSecurePodMonitors(t *testing.T) {
	t.Parallel()
	for secret, verifies := range map[string]string{"": "insecureSkipVerify: true", "s": "serverName: fairlead-metrics." + namespace + ".svc"} {
		out := render(t, helms(t)["helm4"], values{"metrics": values{"secure": true, "certificateSecret": secret, "podMonitor": values{"enabled": true}}})
		_, monitors, _ := strings.Cut(out, "kind: PodMonitor")
		for text, want := range map[string]int{
			"port: metrics": 3, "path: /metrics/pulse": 1, "scheme: https": 3, "name: fairlead-metrics-reader\n": 3, verifies: 3,
			"replacement: pulse": 1, "pulse-metrics": 0,
		} {
			if n := strings.Count(monitors, text); n != want {
				t.Errorf("with Secret %q %d times %q, want %d", secret, n, text, want)
			}
		}
		if !strings.Contains(out, "type: kubernetes.io/service-account-token") {
			t.Error("there is no token")
		}
	}
}
