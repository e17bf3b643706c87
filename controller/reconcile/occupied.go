package reconcile

import (
	"maps"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// Own is what the cluster uses for itself, as far as no object tells it.
type Own struct {
	Pods       []netip.Prefix // their ranges
	APIServers []netip.Addr   // those that are not given by a name
}

// apiServer is the Service of which the API servers themselves are the endpoints.
var apiServer = view.Ref{Namespace: "default", Name: "kubernetes"}

// occupy brings up to date what has addresses beside Services and Nodes.
func (o *objects) occupy(c *view.Cluster) {
	if o.prefixes {
		pods, networks := slices.Clone(o.own.Pods), []netip.Prefix(nil)
		for _, n := range o.nodes {
			pods = append(pods, n.PodCIDRs...)
		}
		for _, of := range o.networks {
			networks = append(networks, of...)
		}
		slices.SortFunc(networks, netip.Prefix.Compare)
		c.PodRanges, c.Networks, o.prefixes = addr.Summarize(pods), slices.Compact(networks), false
		c.Speakers = make(map[string]view.Speaker, len(o.networks))
		for node := range o.networks {
			c.Speakers[node] = view.Speaker{Node: node}
		}
	}
	c.APIServers, c.ExternalIPs = slices.Clone(o.own.APIServers), maps.Clone(o.externalIPs)
	for _, e := range o.endpointSlices.Of(apiServer) {
		c.APIServers = append(c.APIServers, e.Addr)
	}
}

// setNodeForwarding takes over the networks of a node that has a speaker, of which most do not change for months.
func (o *objects) setNodeForwarding(key client.ObjectKey, f *v1beta1.NodeForwarding) bool {
	var now []netip.Prefix
	if f != nil {
		now = fromkube.Networks(f)
	}
	before, known := o.networks[key.Name]
	if known == (f != nil) && slices.Equal(before, now) {
		return false
	}
	if o.networks[key.Name] = now; f == nil {
		delete(o.networks, key.Name)
	}
	o.others, o.places, o.prefixes = true, true, true
	return true
}
