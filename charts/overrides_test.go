package charts_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// What clusters ask of all charts: labels, arguments and variables of one's own, priorities, SELinux, where metrics are served.
func TestOverrides(t *testing.T) {
	t.Parallel()
	variable := []values{{"name": "TZ", "value": "UTC"}, {"name": "IP", "valueFrom": values{"fieldRef": values{"fieldPath": "status.podIP"}}}}
	all := objects(t, values{
		"image":        values{"digest": "sha256:" + strings.Repeat("0a", 32)},
		"commonLabels": values{"team": "edge"}, "selinux": true, "metrics": values{"address": "[::1]"},
		"controller": values{
			"podLabels": values{"tier": "control", "app.kubernetes.io/name": "another"}, "priorityClassName": "high", "dnsPolicy": "ClusterFirst",
			"extraArgs": []string{"--log-level=warn"}, "extraEnv": variable, "serviceAccount": values{"annotations": values{"role": "a"}},
			"topologySpreadConstraints": []values{{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}},
			"podSecurityContext":        values{"runAsUser": nil, "fsGroup": 7}, "securityContext": values{"readOnlyRootFilesystem": false},
		},
		"speaker": values{
			"podLabels": values{"tier": "node"}, "priorityClassName": "higher", "extraArgs": []string{"--log-level=warn"}, "extraEnv": variable,
			"serviceAccount": values{"annotations": values{"role": "b"}}, "podSecurityContext": values{"seccompProfile": values{"type": "Unconfined"}},
			"securityContext": values{"privileged": true, "allowPrivilegeEscalation": true}, "affinity": values{"podAffinity": values{}},
			"pulse": values{"extraArgs": []string{"--log-level=error"}, "extraEnv": variable, "securityContext": values{"privileged": true}},
		},
		"extraObjects": []values{{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": values{"name": "more", "namespace": "{{ .Release.Namespace }}"}, "data": values{"a": "b"},
		}},
	})
	controller := one[*appsv1.Deployment](t, all, "fairlead-controller")
	speaker := one[*appsv1.DaemonSet](t, all, "fairlead-speaker")
	for name, template := range map[string]corev1.PodTemplateSpec{"control": controller.Spec.Template, "node": speaker.Spec.Template} {
		if l := template.Labels; l["team"] != "edge" || l["tier"] != name || l["app.kubernetes.io/name"] != "fairlead" {
			t.Errorf("labels of pods: %v", l)
		}
		for _, c := range template.Spec.Containers {
			if last := c.Args[len(c.Args)-1]; !strings.HasPrefix(last, "--log-level=") || last == "--log-level=info" || !strings.HasSuffix(c.Image, "@sha256:"+strings.Repeat("0a", 32)) {
				t.Errorf("%s runs %s with %v", c.Name, c.Image, c.Args)
			}
			names := map[string]corev1.EnvVar{}
			for _, e := range c.Env {
				names[e.Name] = e
			}
			if names["TZ"].Value != "UTC" || names["IP"].ValueFrom == nil {
				t.Errorf("%s has the variables %v", c.Name, slices.Collect(maps.Keys(names)))
			}
			if probe := c.ReadinessProbe.HTTPGet; name == "node" && probe.Host != "::1" {
				t.Errorf("%s is asked at %q", c.Name, probe.Host)
			}
		}
	}
	if c, s := controller.Spec.Template.Spec, speaker.Spec.Template.Spec; c.PriorityClassName != "high" || s.PriorityClassName != "higher" ||
		c.DNSPolicy != corev1.DNSClusterFirst || len(c.TopologySpreadConstraints) != 1 || s.SecurityContext.SELinuxOptions.Type != "spc_t" {
		t.Errorf("controller %+v, speaker %+v", c, s)
	}
	checkSecurity(t, controller.Spec.Template.Spec, speaker.Spec.Template.Spec)
	for name, role := range map[string]string{"fairlead-controller": "a", "fairlead-speaker": "b"} {
		if a := one[*corev1.ServiceAccount](t, all, name); a.Annotations["role"] != role || a.Labels["team"] != "edge" {
			t.Errorf("%+v", a)
		}
	}
	if more := one[*corev1.ConfigMap](t, all, "more"); more.Namespace != namespace {
		t.Errorf("%+v", more)
	}
}

// checkSecurity checks that fields of the values are in place of the chart's, of which the others stay.
func checkSecurity(t *testing.T, controller, speaker corev1.PodSpec) {
	t.Helper()
	pod, container := controller.SecurityContext, controller.Containers[0].SecurityContext
	if pod.RunAsUser != nil || *pod.FSGroup != 7 || !*pod.RunAsNonRoot || *container.ReadOnlyRootFilesystem || *container.AllowPrivilegeEscalation {
		t.Errorf("controller: %v, %v", pod, container)
	}
	if pod := speaker.SecurityContext; pod.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined || *pod.RunAsUser != 0 || pod.SELinuxOptions.Type != "spc_t" {
		t.Errorf("speaker: %v", pod)
	}
	if a := speaker.Affinity; a.PodAffinity == nil || a.NodeAffinity == nil {
		t.Errorf("affinity of the speaker: %v", a)
	}
	for _, c := range speaker.Containers {
		s := c.SecurityContext
		if !*s.Privileged || *s.AllowPrivilegeEscalation != (c.Name == "speaker") || !slices.Contains(s.Capabilities.Add, "NET_ADMIN") {
			t.Errorf("container %s: %v", c.Name, s)
		}
	}
}

// All ports with metrics are asked, pulse's among them.
func TestPodMonitors(t *testing.T) {
	t.Parallel()
	out := render(t, helms(t)["helm4"], values{"metrics": values{"podMonitor": values{"enabled": true, "interval": "15s", "labels": values{"release": "prometheus"}}}})
	for _, want := range []string{"name: fairlead-speaker", "port: pulse-metrics", "port: metrics", "interval: 15s", "release: prometheus"} {
		if _, monitors, _ := strings.Cut(out, "kind: PodMonitor"); !strings.Contains(monitors, want) {
			t.Errorf("the PodMonitors lack %q", want)
		}
	}
}

// A NetworkPolicy names ports that the controller's container has.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	from := values{"namespaceSelector": values{"matchLabels": values{"kubernetes.io/metadata.name": "monitoring"}}}
	all := objects(t, values{"networkPolicy": values{"enabled": true, "metricsFrom": []values{from}}})
	policy := one[*networkingv1.NetworkPolicy](t, all, "fairlead-controller")
	pod := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("%s does not select the controller's pods: %v", selector, err)
	}
	allowed := map[string][]networkingv1.NetworkPolicyPeer{}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			allowed[port.Port.StrVal] = rule.From
		}
	}
	for _, port := range pod.Spec.Containers[0].Ports {
		if peers, is := allowed[port.Name]; !is || (len(peers) > 0) != (port.Name == "metrics") {
			t.Errorf("port %s is open to %v, %v", port.Name, peers, is)
		}
	}
}

// The base of kustomize is the chart, with the values that stand in it, in a namespace that lets the speakers in.
func TestKustomizeBase(t *testing.T) {
	t.Parallel()
	program := helms(t)["helm4"]
	kubectl := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(program), "kubectl"), "kustomize", "--enable-helm",
		"--load-restrictor", "LoadRestrictionsNone", "--helm-command", program, "../config/default")
	out, err := kubectl.Output()
	if err != nil {
		t.Fatal(err)
	}
	names := func(objects []client.Object) (all []string) {
		for _, o := range objects {
			all = append(all, fmt.Sprintf("%T %s", o, o.GetName()))
		}
		slices.Sort(all)
		return all
	}
	base := decode(t, string(out))
	want := append(objects(t, values{"forwarding": values{"mode": "none"}}), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if diff := cmp.Diff(names(want), names(base)); diff != "" {
		t.Error(diff)
	}
	if one[*corev1.Namespace](t, base, namespace).Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Error("the namespace refuses the speakers")
	}
}

// The alerts are those of the file that users without the operator take, and name metrics that there are.
func TestPrometheusRule(t *testing.T) {
	t.Parallel()
	out := render(t, helms(t)["helm4"], values{"metrics": values{"prometheusRule": values{"enabled": true, "labels": values{"release": "prometheus"}}}})
	_, rule, _ := strings.Cut(out, "kind: PrometheusRule")
	rule, _, _ = strings.Cut(rule, "\n---\n")
	var have struct {
		Metadata metav1.ObjectMeta
		Spec     any
	}
	file, err := os.ReadFile(chart + "/files/rules/fairlead.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := errors.Join(yaml.Unmarshal([]byte(rule), &have), yaml.Unmarshal(file, &want)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have.Spec); diff != "" || have.Metadata.Labels["release"] != "prometheus" {
		t.Errorf("%v: %s", have.Metadata.Labels, diff)
	}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\bfairlead_[a-z0-9_]+`).FindAllString(string(file), -1) {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("an alert names the metric %s, which docs/metrics.md does not explain", name)
		}
	}
	for _, name := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(file), -1) {
		if !strings.Contains(string(page), "| `"+name[1]+"` |") {
			t.Errorf("docs/metrics.md does not say what to do after the alert %s", name[1])
		}
	}
}

// The chart of the kinds alone has all of them, as the programs' chart has.
func TestCRDsAlone(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../config/crd/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for version, program := range helms(t) {
		out, err := helm(t, program, nil, "template", "fairlead-crds", "fairlead-crds")
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for document := range strings.SplitSeq(out, "\n---\n") {
			var crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.Unmarshal([]byte(document), &crd); err != nil {
				t.Fatal(err)
			}
			if crd.Name != "" {
				found = append(found, crd.Name)
			}
			if crd.Name != "" && crd.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s: %s goes with the release", version, crd.Name)
			}
		}
		if len(found) != len(files) {
			t.Errorf("%s: %d kinds, want %d: %v", version, len(found), len(files), found)
		}
	}
}

// What the chart of the configuration makes of values is admitted by a real API server, and what a kind does not have
// is refused by its name.
func testConfigFromValues(t *testing.T, config *rest.Config) {
	programs := helms(t)
	api, err := client.New(config, client.Options{FieldValidation: "Strict"})
	if err != nil {
		t.Fatal(err)
	}
	good := values{
		"ipAddressPools":    values{"lan": values{"addresses": []string{"192.168.1.240-192.168.1.250", "fd00:1::/112"}, "avoidBuggyIPs": true}},
		"l2Advertisements":  values{"lan": values{}},
		"bgpPeers":          values{"tor": values{"myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.1.1", "bfdProfile": "fast"}},
		"bgpAdvertisements": values{"all": values{"communities": []string{"drain"}}},
		"bfdProfiles":       values{"fast": values{"receiveInterval": 150, "transmitInterval": 150}},
		"communities":       values{"names": values{"communities": []values{{"name": "drain", "value": "65535:0"}}}},
	}
	for version, program := range programs {
		out, err := helm(t, program, good, "template", "fairlead-config", "fairlead-config")
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]bool{}
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096)
		for {
			var object unstructured.Unstructured
			if decoder.Decode(&object) != nil {
				break
			}
			if len(object.Object) == 0 {
				continue
			}
			if err := api.Create(t.Context(), &object, client.DryRunAll); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Errorf("%s: %v", version, err)
			}
			kinds[object.GetKind()] = true
		}
		if len(kinds) != len(good) {
			t.Errorf("%s: kinds %v", version, kinds)
		}
	}
	for says, bad := range map[string]values{
		"adresses":         {"ipAddressPools": values{"lan": values{"adresses": []string{"192.168.1.0/24"}}}},
		"ipAdressPools":    {"ipAdressPools": values{}},
		"myASN":            {"bgpPeers": values{"tor": values{"myASN": "64512", "peerASN": 1, "peerAddress": "192.168.1.1"}}},
		"addresses":        {"ipAddressPools": values{"lan": values{}}},
		"detectMultiplier": {"bfdProfiles": values{"fast": values{"detectMultiplier": 1000}}},
	} {
		for version, program := range programs {
			if _, err := helm(t, program, bad, "template", "fairlead-config", "fairlead-config"); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v is not refused for %s: %v", version, bad, says, err)
			}
		}
	}
}
