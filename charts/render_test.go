package charts_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"fairlead.dev/fairlead/api/v1beta1"
)

// matrix is every combination of the values that change the shape of what is
// rendered.
func matrix() map[string]values {
	dimensions := []map[string]values{
		{
			"iptables":       {"forwarding": values{"mode": "iptables"}},
			"iptables,cidrs": {"forwarding": values{"mode": "iptables", "clusterCIDRs": []string{"10.244.0.0/16", "fd00:10:244::/48"}, "nodePortAddresses": []string{"primary", "localhost"}}},
			"nftables":       {"forwarding": values{"mode": "nftables"}},
			"none":           {"forwarding": values{"mode": "none"}},
		},
		{
			"clusterIP": {},
			"host":      {"apiServer": values{"host": "fd00:30::10", "port": 6443}},
		},
		{
			"defaults": {},
			"tuned": {
				"image":             values{"tag": "v1.2.3@sha256:" + strings.Repeat("0a", 32), "pullPolicy": "Always", "pullSecrets": []string{"registry"}},
				"loadBalancerClass": "fairlead.dev/main",
				"crds":              values{"install": false},
				"metrics":           values{"annotations": false},
				"controller": values{
					"replicas": 1, "resources": values{}, "nodeSelector": values{"a": "b"}, "tolerations": []any{},
					"podAnnotations": values{"note": "x"},
					"affinity": values{"nodeAffinity": values{"requiredDuringSchedulingIgnoredDuringExecution": values{"nodeSelectorTerms": []any{
						values{"matchExpressions": []any{values{"key": "a", "operator": "Exists"}}},
					}}}},
				},
				"speaker": values{
					"resources": values{"limits": values{"memory": "256Mi", "cpu": 2}}, "tolerations": []any{},
					"updateStrategy": values{"type": "OnDelete"}, "pulse": values{"resources": values{}},
				},
			},
		},
	}
	all := map[string]values{"": {}}
	for _, dimension := range dimensions {
		wider := map[string]values{}
		for name, v := range all {
			for choice, more := range dimension {
				both := maps.Clone(v)
				maps.Copy(both, more)
				wider[strings.TrimPrefix(name+"/"+choice, "/")] = both
			}
		}
		all = wider
	}
	return all
}

func TestEveryCombinationIsValid(t *testing.T) {
	t.Parallel()
	programs := helms(t)
	for name, v := range matrix() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered := map[string][]client.Object{}
			for version, program := range programs {
				rendered[version] = decode(t, render(t, program, v))
			}
			byName := cmp.Transformer("byName", func(objects []client.Object) map[string]client.Object {
				named := map[string]client.Object{}
				for _, object := range objects {
					named[fmt.Sprintf("%T %s", object, object.GetName())] = object
				}
				return named
			})
			if diff := cmp.Diff(rendered["helm3"], rendered["helm4"], byName); diff != "" {
				t.Errorf("Helm 3 and Helm 4 disagree (-3 +4):\n%s", diff)
			}
			for _, object := range rendered["helm4"] {
				checkPlace(t, object)
			}
		})
	}
}

// checkPlace checks that an object is in the release's namespace or in none,
// and carries the labels by which users find it.
func checkPlace(t *testing.T, object client.Object) {
	t.Helper()
	name := fmt.Sprintf("%T %s", object, object.GetName())
	clusterScoped := []string{"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
	want := namespace
	if slices.Contains(clusterScoped, object.GetObjectKind().GroupVersionKind().Kind) {
		want = ""
	}
	if got := object.GetNamespace(); got != want {
		t.Errorf("%s is in namespace %q, want %q", name, got, want)
	}
	if _, isCRD := object.(*apiextensionsv1.CustomResourceDefinition); !isCRD && !strings.HasPrefix(object.GetName(), "fairlead-") {
		t.Errorf("%s: the name does not begin with fairlead-", name)
	}
	if got := object.GetLabels()["app.kubernetes.io/name"]; got != "fairlead" {
		t.Errorf("%s: label app.kubernetes.io/name is %q", name, got)
	}
}

func TestLintPasses(t *testing.T) {
	t.Parallel()
	for version, program := range helms(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			if _, err := helm(t, program, nil, "lint", "--strict", chart); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCRDsAreTheGeneratedOnes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../config/crd/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in config/crd: %v", err)
	}
	all := objects(t, nil)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &want); err != nil {
			t.Fatal(err)
		}
		got := one[*apiextensionsv1.CustomResourceDefinition](t, all, want.Name)
		if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
			t.Errorf("%s is not what is in %s (-file +chart):\n%s", want.Name, file, diff)
		}
		if got.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s would go when the release is uninstalled, and every object of its kind", want.Name)
		}
	}
}

func TestCRDsCanBeLeftOut(t *testing.T) {
	t.Parallel()
	for _, object := range objects(t, values{"crds": values{"install": false}}) {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
			t.Errorf("%s is rendered with crds.install=false", crd.Name)
		}
	}
}

// The ports of kube-proxy are ours only where we forward.
func TestProxyPortsFollowTheMode(t *testing.T) {
	t.Parallel()
	proxyArgs := func(v values) []string {
		speaker := one[*appsv1.DaemonSet](t, objects(t, v), "fairlead-speaker").Spec.Template.Spec.Containers[0]
		return slices.DeleteFunc(slices.Clone(speaker.Args), func(arg string) bool { return !strings.HasPrefix(arg, "--proxy-") })
	}
	for name, tt := range map[string]struct {
		values values
		want   []string
	}{
		"default": {nil, []string{"--proxy-health-address=:10256", "--proxy-status-address=127.0.0.1:10249"}},
		"nftables": {
			values{"forwarding": values{"mode": "nftables"}},
			[]string{"--proxy-health-address=:10256", "--proxy-status-address=127.0.0.1:10249"},
		},
		"none": {values{"forwarding": values{"mode": "none"}}, nil},
		"others": {
			values{"speaker": values{"proxyHealth": values{"port": 20256}, "proxyStatus": values{"address": "[::1]:20249"}}},
			[]string{"--proxy-health-address=:20256", "--proxy-status-address=[::1]:20249"},
		},
		"an address": {
			values{"speaker": values{"proxyHealth": values{"address": "[::1]"}}},
			[]string{"--proxy-health-address=[::1]:10256", "--proxy-status-address=127.0.0.1:10249"},
		},
		"values of before": { // as with --reuse-values
			values{"speaker": values{"proxyHealth": values{"address": nil}}},
			[]string{"--proxy-health-address=:10256", "--proxy-status-address=127.0.0.1:10249"},
		},
		"off": {
			values{"speaker": values{"proxyHealth": values{"address": "127.0.0.1", "port": 0}, "proxyStatus": values{"address": ""}}},
			[]string{"--proxy-health-address=", "--proxy-status-address="},
		},
	} {
		if got := proxyArgs(tt.values); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// How pods are told from strangers is told the speaker where it is not the default.
func TestPodDetectionFollowsTheValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values values
		want   []string
	}{
		"default":    {values{}, nil},
		"node":       {values{"detectLocalMode": "NodeCIDR"}, []string{"--detect-local-mode=NodeCIDR"}},
		"bridge":     {values{"detectLocalMode": "BridgeInterface", "podBridgeInterface": "cbr0"}, []string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cbr0"}},
		"names":      {values{"detectLocalMode": "InterfaceNamePrefix", "podInterfaceNamePrefix": "cali"}, []string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=cali"}},
		"masquerade": {values{"masqueradeAll": true}, []string{"--masquerade-all"}},
		"of an earlier release": {
			values{"detectLocalMode": nil, "podBridgeInterface": nil, "podInterfaceNamePrefix": nil, "masqueradeAll": nil, "clusterCIDRs": []string{"10.0.0.0/8"}},
			[]string{"--cluster-cidrs=10.0.0.0/8"},
		},
	} {
		speaker := one[*appsv1.DaemonSet](t, objects(t, values{"forwarding": tt.values}), "fairlead-speaker").Spec.Template.Spec.Containers[0]
		got := slices.DeleteFunc(slices.Clone(speaker.Args), func(arg string) bool {
			return !strings.HasPrefix(arg, "--detect-") && !strings.HasPrefix(arg, "--pod-") && !strings.HasPrefix(arg, "--masq") && !strings.HasPrefix(arg, "--cluster-")
		})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestArgumentsOfTheConnectionTable: kube-proxy's defaults, unless another proxy forwards.
func TestArgumentsOfTheConnectionTable(t *testing.T) {
	t.Parallel()
	args := func(perCore, least, established, closeWait, liberal, udp, stream string) []string {
		return []string{
			"--conntrack-dir=/run/netfilter", "--conntrack-max-per-core=" + perCore, "--conntrack-min=" + least,
			"--conntrack-tcp-timeout-established=" + established, "--conntrack-tcp-timeout-close-wait=" + closeWait,
			"--conntrack-tcp-be-liberal=" + liberal, "--conntrack-udp-timeout=" + udp, "--conntrack-udp-timeout-stream=" + stream,
		}
	}
	none := values{"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
	for name, tt := range map[string]struct {
		values values
		want   []string
	}{
		"default":  {values{}, args("32768", "131072", "24h", "1h", "false", "0s", "0s")},
		"none":     {values{"mode": "none"}, nil},
		"as it is": {values{"conntrack": none}, nil},
		"others": {
			values{"conntrack": values{"maxPerCore": 1000000, "min": 2000000, "tcpEstablishedTimeout": "1h30m", "tcpCloseWaitTimeout": "0s", "tcpBeLiberal": true, "udpTimeout": "45s", "udpStreamTimeout": "3m"}},
			args("1000000", "2000000", "1h30m", "0s", "true", "45s", "3m"),
		},
	} {
		speaker := one[*appsv1.DaemonSet](t, objects(t, values{"forwarding": tt.values}), "fairlead-speaker").Spec.Template.Spec.Containers[0]
		got := slices.DeleteFunc(slices.Clone(speaker.Args), func(arg string) bool { return !strings.HasPrefix(arg, "--conntrack-") })
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestExternalIPsAreThoseOfPoolsUnlessSaidOtherwise(t *testing.T) {
	t.Parallel()
	for want, forwarding := range map[string]values{"Pools": {}, "All": {"externalIPs": "All"}, "None": {"externalIPs": "None"}} {
		speaker := one[*appsv1.DaemonSet](t, objects(t, values{"forwarding": forwarding}), "fairlead-speaker").Spec.Template.Spec.Containers[0]
		if !slices.Contains(speaker.Args, "--external-ips="+want) {
			t.Errorf("%v: the arguments are %v", forwarding, speaker.Args)
		}
	}
}

func TestPingsAreAnsweredUnlessSaidOtherwise(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{true, false} {
		speaker := one[*appsv1.DaemonSet](t, objects(t, values{"forwarding": values{"answerPings": answered}}), "fairlead-speaker").Spec.Template.Spec.Containers[0]
		if slices.Contains(speaker.Args, "--no-ping") == answered {
			t.Errorf("answerPings %t: the arguments are %v", answered, speaker.Args)
		}
	}
}

// TestMemoryIsLimited: each container has a limit, and is told it.
func TestMemoryIsLimited(t *testing.T) {
	t.Parallel()
	const named = "MEMORY_LIMIT"
	for _, limited := range []bool{true, false} {
		resources := values{}
		if !limited {
			resources = values{"limits": nil}
		}
		all := objects(t, values{
			"controller": values{"resources": resources},
			"speaker":    values{"resources": resources, "pulse": values{"resources": resources}},
		})
		containers := slices.Concat(one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template.Spec.Containers,
			one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template.Spec.Containers)
		if len(containers) != 3 {
			t.Fatalf("%d containers", len(containers))
		}
		for _, c := range containers {
			at := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == named })
			told := at >= 0 && c.Env[at].ValueFrom.ResourceFieldRef.Resource == "limits.memory"
			if limit := c.Resources.Limits.Memory(); told != limited || limited && limit.Value() < 1<<30 || !limited && !limit.IsZero() {
				t.Errorf("%s: limit %s, told %t; want limited %t", c.Name, limit, told, limited)
			}
		}
	}
}

func TestArgumentsFollowTheValues(t *testing.T) {
	t.Parallel()
	all := objects(t, values{
		"logLevel":          "debug",
		"loadBalancerClass": "fairlead.dev/main", "serveUnclassed": true, "metallbAnnotations": false,
		"apiServer":  values{"host": "192.0.2.10", "port": 8443, "servers": []string{"192.0.2.12:6443", "[2001:db8::12]:6443"}},
		"forwarding": values{"mode": "none", "clusterCIDRs": []string{"10.0.0.0/8", "fd00::/8"}, "externalIPs": []string{"192.0.2.0/28", "2001:db8::/64"}},
		"controller": values{"apiServer": values{"host": "192.0.2.11", "port": 443}, "metricsPort": 17472, "healthPort": 17473},
		"speaker": values{
			"metricsPort": 17474, "ignoreExcludeLB": true, "bgpListenPort": 1790,
			"hello": values{"port": 17475, "interval": "50ms", "multiplier": 4, "damping": "10m"},
			"pulse": values{"metricsPort": 17476, "realtime": false},
		},
	})
	controller := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template
	speaker := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template
	tests := []struct {
		container corev1.Container
		command   []string
		args      []string
		ports     []int32
		apiServer string
		fields    map[string]string // of the pod, by the variable that tells them
	}{
		{
			container: controller.Spec.Containers[0],
			command:   []string{"/usr/local/bin/controller"},
			args: []string{
				"--load-balancer-class=fairlead.dev/main", "--serve-unclassed=true", "--metallb-annotations=false", "--ignore-exclude-lb", "--cluster-cidrs=10.0.0.0/8,fd00::/8",
				"--api-servers=192.0.2.10:8443,192.0.2.12:6443,[2001:db8::12]:6443",
				"--leader-elect=true", "--metrics-bind-address=:17472", "--health-probe-bind-address=:17473", "--log-level=debug",
			},
			ports:     []int32{17472, 17473},
			apiServer: "192.0.2.11 443",
			fields:    map[string]string{"POD_NAMESPACE": "metadata.namespace"},
		},
		{
			container: speaker.Spec.Containers[0],
			command:   []string{"/usr/local/bin/speaker"},
			args: []string{
				"--forwarding-mode=none", "--api-servers=192.0.2.12:6443,[2001:db8::12]:6443", "--cluster-cidrs=10.0.0.0/8,fd00::/8", "--external-ips=192.0.2.0/28,2001:db8::/64", "--host-ports=17475,17476", "--load-balancer-class=fairlead.dev/main",
				"--serve-unclassed=true", "--ignore-exclude-lb", "--bgp-listen-port=1790", "--metrics-bind-address=:17474", "--pulse-socket=/run/fairlead/pulse.sock", "--log-level=debug",
			},
			ports:     []int32{17474},
			apiServer: "192.0.2.10 8443",
			fields:    map[string]string{"POD_NAMESPACE": "metadata.namespace", "NODE_NAME": "spec.nodeName"},
		},
		{
			container: speaker.Spec.Containers[1],
			command:   []string{"/usr/local/bin/speaker", "pulse"},
			args: []string{
				"--socket=/run/fairlead/pulse.sock", "--hello-port=17475", "--hello-interval=50ms", "--hello-multiplier=4", "--damping=10m",
				"--realtime=false", "--hand-over=false", "--metrics-bind-address=:17476", "--log-level=debug",
			},
			ports:     []int32{17475, 17476},
			apiServer: " ",
			fields:    map[string]string{"NODE_NAME": "spec.nodeName"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.container.Name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.command, tt.container.Command); diff != "" {
				t.Errorf("command (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.args, tt.container.Args); diff != "" {
				t.Errorf("args (-want +got):\n%s", diff)
			}
			var ports []int32
			for _, port := range tt.container.Ports {
				ports = append(ports, port.ContainerPort)
			}
			if diff := cmp.Diff(tt.ports, ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			env, fields := map[string]string{}, map[string]string{}
			for _, variable := range tt.container.Env {
				env[variable.Name] = variable.Value
				if from := variable.ValueFrom; from != nil && from.FieldRef != nil {
					fields[variable.Name] = from.FieldRef.FieldPath
				}
			}
			if diff := cmp.Diff(tt.fields, fields); diff != "" {
				t.Errorf("fields of the pod (-want +got):\n%s", diff)
			}
			if got := env["KUBERNETES_SERVICE_HOST"] + " " + env["KUBERNETES_SERVICE_PORT"]; got != tt.apiServer {
				t.Errorf("API server is %q, want %q", got, tt.apiServer)
			}
			// client-go waits for 30 s and 15 s. internal/apiservers tries the failover with what stands in the chart.
			if got := env["HTTP2_READ_IDLE_TIMEOUT_SECONDS"] + " " + env["HTTP2_PING_TIMEOUT_SECONDS"]; tt.apiServer != " " && got != "2 2" {
				t.Errorf("pings of the API server are %q", got)
			}
		})
	}
	for want, template := range map[string]corev1.PodTemplateSpec{"17472": controller, "17474": speaker} {
		if got := template.Annotations["prometheus.io/port"]; got != want {
			t.Errorf("annotation prometheus.io/port is %q, want %q", got, want)
		}
	}
}

func TestPodAnnotationsOfTheUserWin(t *testing.T) {
	t.Parallel()
	mine := map[string]string{"note": "mine", "prometheus.io/port": "9"}
	all := objects(t, values{"speaker": values{"podAnnotations": mine}})
	got := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template.Annotations
	want := map[string]string{
		"note": "mine", "prometheus.io/port": "9", "prometheus.io/scrape": "true", "prometheus.io/path": "/metrics",
		v1beta1.AnnotationBoundedLoad: "true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// TestPodsTellWhetherLoadIsBounded: speakers find it in the pods of all of them, so that it
// is not for podAnnotations to say otherwise.
func TestPodsTellWhetherLoadIsBounded(t *testing.T) {
	t.Parallel()
	for _, bounded := range []bool{true, false} {
		all := objects(t, values{"metrics": values{"annotations": false}, "speaker": values{
			"boundedLoad": bounded, "podAnnotations": map[string]string{v1beta1.AnnotationBoundedLoad: "what"},
		}})
		got := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template.Annotations
		if want := map[string]string{v1beta1.AnnotationBoundedLoad: strconv.FormatBool(bounded)}; !maps.Equal(got, want) {
			t.Errorf("annotations %v, want %v", got, want)
		}
	}
}

func TestSelectorsMatchTheirPods(t *testing.T) {
	t.Parallel()
	all := objects(t, nil)
	deployment := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec
	daemonset := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec
	for component, of := range map[string]struct{ selector, pod map[string]string }{
		"controller": {deployment.Selector.MatchLabels, deployment.Template.Labels},
		"speaker":    {daemonset.Selector.MatchLabels, daemonset.Template.Labels},
	} {
		// The speaker finds its peers by these two.
		want := map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/component": component}
		if diff := cmp.Diff(want, of.selector); diff != "" {
			t.Errorf("selector of the %s (-want +got):\n%s", component, diff)
		}
		if diff := cmp.Diff(want, of.pod); diff != "" {
			t.Errorf("pods of the %s (-want +got):\n%s", component, diff)
		}
	}
}

// TestPulseHandsOverUnlessAnotherProxyForwards: the connections are that proxy's.
func TestPulseHandsOverUnlessAnotherProxyForwards(t *testing.T) {
	for mode, hands := range map[string]bool{"iptables": true, "nftables": true, "none": false} {
		all := objects(t, values{"forwarding": values{"mode": mode}})
		pulse := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template.Spec.Containers[1]
		if told := slices.Contains(pulse.Args, "--hand-over=false"); pulse.Name != "pulse" || told == hands {
			t.Errorf("%s: %s gets %q", mode, pulse.Name, pulse.Args)
		}
	}
}
