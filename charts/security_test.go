package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestContainersAreConfined(t *testing.T) {
	t.Parallel()
	all := objects(t, nil)
	controller := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template.Spec
	speaker := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template.Spec
	tests := []struct {
		pod          corev1.PodSpec
		containers   []string
		user         int64
		nonRoot      bool
		hostNetwork  bool
		capabilities map[string][]corev1.Capability
	}{
		{pod: controller, containers: []string{"controller"}, user: 65532, nonRoot: true},
		{
			pod: speaker, containers: []string{"speaker", "pulse"}, hostNetwork: true,
			capabilities: map[string][]corev1.Capability{
				"speaker": {"NET_ADMIN", "NET_RAW"}, "pulse": {"NET_ADMIN", "NET_RAW", "SYS_NICE"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.containers[0], func(t *testing.T) {
			t.Parallel()
			security := tt.pod.SecurityContext
			if got := *security.RunAsUser; got != tt.user {
				t.Errorf("user %d, want %d", got, tt.user)
			}
			if got := security.RunAsNonRoot != nil && *security.RunAsNonRoot; got != tt.nonRoot {
				t.Errorf("runAsNonRoot %v, want %v", got, tt.nonRoot)
			}
			if got := security.SeccompProfile.Type; got != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("seccomp profile %q", got)
			}
			if tt.pod.HostNetwork != tt.hostNetwork || tt.pod.HostPID || tt.pod.HostIPC {
				t.Errorf("host network %v, PID %v, IPC %v", tt.pod.HostNetwork, tt.pod.HostPID, tt.pod.HostIPC)
			}
			if len(tt.pod.InitContainers) != 0 {
				t.Errorf("%d init containers, want none", len(tt.pod.InitContainers))
			}
			var names []string
			for _, container := range tt.pod.Containers {
				names = append(names, container.Name)
				checkConfined(t, container, tt.capabilities[container.Name])
			}
			if diff := cmp.Diff(tt.containers, names); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
		})
	}
}

// checkConfined checks that a container has these capabilities and no other
// privilege.
func checkConfined(t *testing.T, container corev1.Container, capabilities []corev1.Capability) {
	t.Helper()
	no, yes := false, true
	want := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem:   &yes,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
	}
	if diff := cmp.Diff(want, container.SecurityContext); diff != "" {
		t.Errorf("security context of %s (-want +got):\n%s", container.Name, diff)
	}
}

// The lock of iptables is there in all modes: they remove what another one left. The
// setting for NodePorts on localhost is there for who asks for these, those of the connection
// table for who forwards and does not leave it as it is.
func TestMountsOfTheSpeaker(t *testing.T) {
	t.Parallel()
	type mounts = map[string]string // by path in the container: the host's, "" for another volume
	bare := mounts{"/run/fairlead": "", "/run/xtables.lock": "/run/xtables.lock", "/var/run/secrets/kubernetes.io/serviceaccount": ""}
	speaker := maps.Clone(bare)
	speaker["/run/netfilter"] = "/proc/sys/net/netfilter"
	withLocalhost := maps.Clone(speaker)
	withLocalhost["/run/route_localnet"] = "/proc/sys/net/ipv4/conf/all/route_localnet"
	for name, test := range map[string]struct {
		forwarding values
		want       mounts
	}{
		"iptables":         {values{"mode": "iptables"}, speaker},
		"nftables":         {values{"mode": "nftables", "nodePortAddresses": []string{"primary", "0.0.0.0/0"}}, speaker},
		"none":             {values{"mode": "none"}, bare},
		"as it is":         {values{"conntrack": values{"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}}, bare},
		"one timeout":      {values{"conntrack": values{"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s", "udpTimeout": "10s"}}, speaker},
		"localhost":        {values{"nodePortAddresses": []string{"primary", "localhost"}}, withLocalhost},
		"loopback address": {values{"nodePortAddresses": []string{"127.0.0.1/32"}}, withLocalhost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := objects(t, values{"forwarding": test.forwarding})
			pod := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template.Spec
			if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
				t.Error("the token is mounted into every container")
			}
			host := map[string]string{}
			for _, volume := range pod.Volumes {
				if volume.HostPath != nil {
					host[volume.Name] = volume.HostPath.Path
				}
			}
			got := map[string]mounts{}
			for _, container := range pod.Containers {
				got[container.Name] = mounts{}
				for _, mount := range container.VolumeMounts {
					got[container.Name][mount.MountPath] = host[mount.Name]
				}
			}
			if diff := cmp.Diff(map[string]mounts{"speaker": test.want, "pulse": {"/run/fairlead": ""}}, got); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsSurviveWhatTheyCauseOrCure(t *testing.T) {
	t.Parallel()
	all := objects(t, nil)
	daemonset := one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec
	want := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if diff := cmp.Diff(want, daemonset.Template.Spec.Tolerations); diff != "" {
		t.Errorf("a speaker must run on every node (-want +got):\n%s", diff)
	}
	if got := daemonset.Template.Spec.PriorityClassName; got != "system-node-critical" {
		t.Errorf("priority class %q", got)
	}
	if got := daemonset.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue(); got != 1 {
		t.Errorf("an upgrade takes %d nodes at a time, want 1", got)
	}
	// BGP is dialed every one to two seconds, and pulse listens for half a one; a
	// cluster of a hundred nodes is still upgraded in a quarter of an hour.
	if got := daemonset.MinReadySeconds; got < 3 || got > 6 {
		t.Errorf("an upgrade goes on %d s after a speaker is ready, want 3 to 6", got)
	}
	for _, container := range daemonset.Template.Spec.Containers {
		if container.LivenessProbe != nil || container.StartupProbe != nil {
			t.Errorf("container %s is killed while another program holds its port on the node", container.Name)
		}
		if container.ReadinessProbe == nil {
			t.Errorf("nobody sees that container %s is not well", container.Name)
		}
	}
	controller := one[*appsv1.Deployment](t, all, "fairlead-controller").Spec
	for program, got := range map[string]corev1.DNSPolicy{"speaker": daemonset.Template.Spec.DNSPolicy, "controller": controller.Template.Spec.DNSPolicy} {
		if got != corev1.DNSDefault {
			t.Errorf("the %s would need a Service to reach the API server by name: DNS policy %q", program, got)
		}
	}
	for _, o := range all {
		if budget, is := o.(*policyv1.PodDisruptionBudget); is {
			t.Errorf("%s keeps a node from being drained that is the only one for its pods", budget.Name)
		}
	}
}

// crs are the resources of our own API that every node needs.
const crs = "fairlead.dev bfdprofiles,bgpadvertisements,bgppeers,communities,ipaddresspools,ipreservations,l2advertisements"

// tenants are the rules that Kubernetes adds to its own roles, which users are given.
var tenants = map[string][]string{
	"ClusterRole fairlead-ipreservations-edit": {"fairlead.dev ipreservations: create,delete,deletecollection,patch,update"},
	"ClusterRole fairlead-ipreservations-view": {"fairlead.dev ipreservations: get,list,watch"},
}

// permissions are everything that the pods may ask of the API server: by role,
// one line for each rule: API group ("core" for the one without a name),
// resources, names if limited to some, verbs.
var permissions = map[string][]string{
	"ClusterRole fairlead-controller": {
		"core namespaces,nodes,services: list,watch",
		"core namespaces: get",
		"core services/status: patch",
		"discovery.k8s.io endpointslices: list,watch",
		"events.k8s.io events: create,patch",
		"fairlead.dev bfdprofiles,bgpadvertisements,bgppeers,bgpsessions,communities,ipaddresspools,ipreservations,l2advertisements: list,watch",
		"fairlead.dev l2addresses: list,watch",
		"fairlead.dev nodeforwardings: list,watch",
		"fairlead.dev bgpsessions: delete",
		"fairlead.dev ipaddresspools,ipreservations: get",
		"fairlead.dev bfdprofiles/status,bgpadvertisements/status,bgppeers/status,communities/status,ipaddresspools/status,ipreservations/status,l2advertisements/status: patch",
		"networking.k8s.io servicecidrs: list,watch",
	},
	"Role fairlead-controller": {
		"coordination.k8s.io leases [fairlead-controller]: get,update",
		"coordination.k8s.io leases: create",
		"core configmaps: create,delete,list,patch",
		"core events: create,patch",
		"core secrets [fairlead-hello]: patch",
		"core secrets: create,list,watch",
		"rbac.authorization.k8s.io roles [fairlead-speaker-passwords]: list,patch,watch",
	},
	"ClusterRole fairlead-speaker": {
		"core nodes,services: list,watch",
		"discovery.k8s.io endpointslices: list,watch",
		"events.k8s.io events: create,patch",
		crs + ": list,watch",
		"fairlead.dev bgpsessions/status: patch",
		"fairlead.dev bgpsessions: create,delete,list,watch",
		"fairlead.dev l2addresses/status: patch",
		"fairlead.dev l2addresses: create,delete,list,patch,watch",
		"networking.k8s.io servicecidrs: list,watch",
		"fairlead.dev nodeforwardings/status: patch",
		"fairlead.dev nodeforwardings: create,delete,list,watch",
	},
	"Role fairlead-speaker": {
		"apps daemonsets [fairlead-speaker]: get,list,watch",
		"core pods: list,watch",
		"core secrets [fairlead-hello]: list,watch",
	},
	"Role fairlead-speaker-passwords": nil, // the controller writes its rules
}

func TestPermissionsAreTheseAndNoMore(t *testing.T) {
	t.Parallel()
	all := objects(t, nil)
	got := map[string][]string{}
	for _, object := range all {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			got["ClusterRole "+role.Name] = lines(role.Rules)
		case *rbacv1.Role:
			got["Role "+role.Name] = lines(role.Rules)
		}
	}
	want := maps.Clone(permissions)
	maps.Copy(want, tenants)
	for _, rules := range want {
		slices.Sort(rules)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
}

// TestTenantsRolesAreAggregated: who has a role in a namespace has its share of ours.
func TestTenantsRolesAreAggregated(t *testing.T) {
	t.Parallel()
	all := objects(t, nil)
	for name, roles := range map[string][]string{
		"fairlead-ipreservations-edit": {"admin", "edit"}, "fairlead-ipreservations-view": {"admin", "edit", "view"},
	} {
		labels := one[*rbacv1.ClusterRole](t, all, name).Labels
		for _, role := range []string{"admin", "edit", "view"} {
			if got := labels["rbac.authorization.k8s.io/aggregate-to-"+role] == "true"; got != slices.Contains(roles, role) {
				t.Errorf("%s is added to the role %s: %t", name, role, got)
			}
		}
	}
}

// lines writes rules as in permissions.
func lines(rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, rule := range rules {
		groups := strings.Join(sorted(rule.APIGroups), ",")
		if groups == "" {
			groups = "core"
		}
		line := groups + " " + strings.Join(sorted(rule.Resources), ",")
		if len(rule.ResourceNames) > 0 {
			line += " [" + strings.Join(sorted(rule.ResourceNames), ",") + "]"
		}
		all = append(all, line+": "+strings.Join(sorted(rule.Verbs), ","))
	}
	return sorted(all)
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestEachRoleGoesToItsOwnPods(t *testing.T) {
	t.Parallel()
	all := objects(t, nil)
	bound := map[string]string{}
	for _, object := range all {
		switch binding := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			bound[binding.RoleRef.Kind+" "+binding.RoleRef.Name] = account(t, binding, binding.Subjects)
		case *rbacv1.RoleBinding:
			bound[binding.RoleRef.Kind+" "+binding.RoleRef.Name] = account(t, binding, binding.Subjects)
		}
	}
	for _, role := range slices.Sorted(maps.Keys(permissions)) {
		_, name, _ := strings.Cut(role, " ")
		if want := namespace + "/" + strings.TrimSuffix(name, "-passwords"); bound[role] != want {
			t.Errorf("%s is bound to %q, want %q", role, bound[role], want)
		}
	}
	if len(bound) != len(permissions) {
		t.Errorf("%d roles are bound, want %d", len(bound), len(permissions))
	}
	pods := map[string]string{
		"fairlead-controller": one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template.Spec.ServiceAccountName,
		"fairlead-speaker":    one[*appsv1.DaemonSet](t, all, "fairlead-speaker").Spec.Template.Spec.ServiceAccountName,
	}
	for want, got := range pods {
		if got != want {
			t.Errorf("the pods of %s run as %q", want, got)
		}
		one[*corev1.ServiceAccount](t, all, want)
	}
}

// account is the one ServiceAccount that a role is bound to.
func account(t *testing.T, binding client.Object, subjects []rbacv1.Subject) string {
	t.Helper()
	if len(subjects) != 1 || subjects[0].Kind != rbacv1.ServiceAccountKind {
		t.Fatalf("%T %s has subjects %v, want one ServiceAccount", binding, binding.GetName(), subjects)
	}
	return subjects[0].Namespace + "/" + subjects[0].Name
}
