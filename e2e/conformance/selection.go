// Package conformance runs Kubernetes' own end-to-end tests of Services against
// Fairlead, in a lab that runs no kube-proxy. docs/conformance.md tells what is run,
// what is not, and why.
package conformance

import "strings"

// conforming are what every cluster must pass. A test is run if its name matches one of
// these regular expressions, and each must match a test that is run.
var conforming = []string{
	`\[sig-network\] Services .*\[Conformance\]`,
	`\[sig-network\] EndpointSlice .*\[Conformance\]`,
	`\[sig-network\] EndpointSliceMirroring .*\[Conformance\]`,
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
	`\[sig-network\] \[Feature:IPv6DualStack\] `,
	`\[sig-network\] Connectivity Pod Lifecycle `,
	`\[sig-network\] Traffic Distribution `,
	`\[sig-network\] Topology Hints `,
	`\[sig-network\] Service CIDRs `,
	`\[sig-network\] NoSNAT `,
	`\[sig-network\] LoadBalancers `,
}

// skip are tests that these select and that are not run, and why not.
var skip = []struct{ pattern, why string }{
	{`\[Disruptive\]`, "they restart kube-proxy or the API server over SSH"},
	{`\[Feature:SCTPConnectivity\]`, "not every kernel has SCTP sockets"},
	{`not have connectivity disruption during rolling update`, "they take a quarter of an hour"},
	{`between pods on multiple nodes|on the same node or fall back to same zone`, "they need six nodes in three zones"},
	{
		`switch session affinity for LoadBalancer service with Local`,
		"by layer 2 a client reaches one node, and under policy Local only the pods there",
	},
	{`cleanup finalizer`, "it asks for a finalizer of the cloud controller's, which Fairlead does without"},
}

// skipPatterns are the patterns of skip.
func skipPatterns() []string {
	var all []string
	for _, s := range skip {
		all = append(all, s.pattern)
	}
	return all
}

// title is the name of a test without what all of them begin with.
func title(name string) string { return strings.TrimPrefix(name, "[sig-network] ") }
