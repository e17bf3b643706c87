// Package conformance runs Kubernetes' own end-to-end tests of Services against
// Fairlead, in a lab without kube-proxy. docs/conformance.md says what is run, what is
// not, and why.
package conformance

import (
	"slices"
	"strings"

	"fairlead.dev/fairlead/e2e/lab"
)

// conforming are what every cluster must pass. A test is run if its name matches one of
// these regular expressions, and each must match a test that is run.
var conforming = []string{
	`\[sig-network\] Services .*\[Conformance\]`,
	`\[sig-network\] EndpointSlice .*\[Conformance\]`,
	`\[sig-network\] EndpointSliceMirroring .*\[Conformance\]`,
}

// required returns the titles of the tests that conforming selects in the newest release of Kubernetes that the lab runs, or in the
// older one. Others may have others: then these lists are to be changed with them.
func required(version string) []string {
	if version == lab.OlderKubernetesVersion {
		return slices.Concat(requiredOfAll, requiredOfOlder)
	}
	return slices.Concat(requiredOfAll, requiredOfNewest)
}

var requiredOfOlder = []string{
	"EndpointSlice should create and delete Endpoints and EndpointSlices for a Service with a selector specified [Conformance]",
	"EndpointSlice should have Endpoints and EndpointSlices pointing to API Server [Conformance]",
	"Services should provide secure master service [Conformance]",
	"Services should test the lifecycle of an Endpoint [Conformance]",
}

var requiredOfNewest = []string{
	"EndpointSlice should create and delete EndpointSlices for a Service with a selector that matches no pods [Conformance]",
	"EndpointSlice should support a Service with multiple endpoint IPs specified in multiple EndpointSlices [Conformance]",
	"EndpointSlice should support a Service with multiple ports specified in multiple EndpointSlices [Conformance]",
}

var requiredOfAll = []string{
	"EndpointSlice should create Endpoints and EndpointSlices for Pods matching a Service [Conformance]",
	"EndpointSlice should support creating EndpointSlice API operations [Conformance]",
	"EndpointSliceMirroring should mirror a custom Endpoints resource through create update and delete [Conformance]",
	"Services should be able to change the type from ClusterIP to ExternalName [Conformance]",
	"Services should be able to change the type from ExternalName to ClusterIP [Conformance]",
	"Services should be able to change the type from ExternalName to NodePort [Conformance]",
	"Services should be able to change the type from NodePort to ExternalName [Conformance]",
	"Services should be able to create a functioning NodePort service [Conformance]",
	"Services should be able to switch session affinity for NodePort service [LinuxOnly] [Conformance]",
	"Services should be able to switch session affinity for service with type clusterIP [LinuxOnly] [Conformance]",
	"Services should complete a service status lifecycle [Conformance]",
	"Services should delete a collection of services [Conformance]",
	"Services should find a service from listing all namespaces [Conformance]",
	"Services should have session affinity work for NodePort service [LinuxOnly] [Conformance]",
	"Services should have session affinity work for service with type clusterIP [LinuxOnly] [Conformance]",
	"Services should serve a basic endpoint from pods [Conformance]",
	"Services should serve endpoints on same port and different protocols [Conformance]",
	"Services should serve multiport endpoints from pods [Conformance]",
}

// sample are a few of them, which tell most of a cluster that is another one than the first.
var sample = []string{
	`\[sig-network\] Services should serve endpoints on same port and different protocols`,
	`\[sig-network\] Services should be able to create a functioning NodePort service`,
	`\[sig-network\] Services should have session affinity work for NodePort service`,
	`\[sig-network\] EndpointSlice should support a Service with multiple ports`,
}

// notRun are those titles of which there is no test among specs, or one that skipped itself.
func notRun(titles []string, specs []spec) []string {
	done := map[string]bool{}
	for _, s := range specs {
		done[title(s.name)] = s.skips == ""
	}
	return slices.DeleteFunc(slices.Clone(titles), func(title string) bool { return done[title] })
}

// whole are those and all others that a service proxy and a load balancer have to do with.
var whole = []string{
	`\[sig-network\] Services `,
	`\[sig-network\] EndpointSlice `,
	`\[sig-network\] EndpointSliceMirroring `,
	`\[sig-network\] Conntrack `,
	`\[sig-network\] HostPort `,
	`\[sig-network\] Networking Granular Checks: Services `,
	`\[sig-network\] Networking should check kube-proxy urls`,
	`\[sig-network\] KubeProxy should set TCP CLOSE_WAIT timeout`,
	`\[sig-network\] \[Feature:IPv6DualStack\] `,
	`\[sig-network\] Connectivity Pod Lifecycle `,
	`\[sig-network\] Traffic Distribution `,
	`\[sig-network\] Topology Hints `,
	`\[sig-network\] Service CIDRs `,
	`\[sig-network\] NoSNAT `,
	`\[sig-network\] LoadBalancers `,
}

// skip are tests that are not run, and why not: anywhere, or only where IPv6 is the first family. Of those that whole does
// not select anyway the list has what one may look for.
var skip = []struct {
	pattern, why string
	ipv6First    bool
}{
	{pattern: `\[Disruptive\]`, why: "they restart kube-proxy or the API server, or flush the rules of a node, over SSH"},
	{pattern: `\[Feature:SCTPConnectivity\]`, why: "not every kernel has SCTP sockets"},
	{pattern: `\[Feature:KubeProxyNFAcct\]`, why: "it reads a metric of kube-proxy's, which Fairlead does not have"},
	{pattern: `creating a Pod with an SCTP HostPort`, why: "it asks for a pod alone, and that no kernel module is loaded: a proxy has no part in it"},
	{pattern: `\[sig-network\] ServiceCIDR and IPAddress API `, why: "they write and read objects of the API server: a proxy has no part in them"},
	{pattern: `not have connectivity disruption during rolling update`, why: "they take a quarter of an hour"},
	{pattern: `between pods on multiple nodes|on the same node or fall back to same zone`, why: "they need six nodes in three zones"},
	{
		pattern: `switch session affinity for LoadBalancer service with Local`,
		why:     "by layer 2 a client reaches one node, and under policy Local only the pods there",
	},
	{pattern: `cleanup finalizer`, why: "it asks for a finalizer of the cloud controller's, which Fairlead does without"},
	{pattern: `source ranges`, why: "it asks wget for an IPv6 address that it does not put in brackets", ipv6First: true},
	{pattern: `Local .* should work from pods`, why: "of the client's IPv6 address it looks at what is before the first colon", ipv6First: true},
}

// skipPatterns are the patterns of skip, for a cluster whose first family is IPv6 or not.
func skipPatterns(ipv6First bool) []string {
	var patterns []string
	for _, s := range skip {
		if ipv6First || !s.ipv6First {
			patterns = append(patterns, s.pattern)
		}
	}
	return patterns
}

// title is the name of a test without what all of them begin with.
func title(name string) string { return strings.TrimPrefix(name, "[sig-network] ") }
