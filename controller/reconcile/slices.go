package reconcile

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// setSlice takes over an EndpointSlice. It matters only to a Service of which endpoints are
// looked at, and only if they are usable on other nodes than before.
func (o *objects) setSlice(key client.ObjectKey, s *discoveryv1.EndpointSlice) (matters bool) {
	var ref view.Ref
	var endpoints []view.Endpoint
	if s != nil {
		ref, endpoints, _ = fromkube.EndpointSlice(s)
	}
	former := o.endpointSlices.Service(key)
	before := map[view.Ref]string{former: o.usable(former), ref: o.usable(ref)}
	for _, changed := range o.endpointSlices.Set(key, ref, endpoints) {
		if changed == apiServer {
			o.others, o.places, matters = true, true, true
		}
		if before[changed] != o.usable(changed) {
			o.touched[changed] = struct{}{}
			matters = true
		}
	}
	return matters
}

// usable lists the nodes on which endpoints of a Service are usable, which is all that is read of them here.
func (o *objects) usable(ref view.Ref) string {
	endpoints := o.endpoints(ref)
	if len(endpoints) == 0 {
		return ""
	}
	var nodes []string
	for _, family := range addr.Families() {
		nodes = append(nodes, strings.Join(view.UsableOf(o.views[ref], endpoints, family).Nodes(), " "))
	}
	return strings.Join(nodes, "/")
}

// endpoints are those of a Service, if they are looked at here: under policy Local they decide which nodes can
// announce it, and where there are aggregates, routers may send the nodes of one Service packets for another. The
// endpoints of the others matter to speakers alone.
func (o *objects) endpoints(ref view.Ref) []view.Endpoint {
	s := o.views[ref]
	if s == nil || s.Type != view.LoadBalancer || o.aggregates == 0 && !s.ExternalLocal {
		return nil
	}
	return o.endpointSlices.Of(ref)
}

// aggregate counts the BGPAdvertisements with an aggregate, of which one is to be replaced.
// With the first and the last one the endpoints of all Services come and go.
func (o *objects) aggregate(before, now *v1beta1.BGPAdvertisement) {
	counted := o.aggregates
	if aggregates(before) {
		o.aggregates--
	}
	if aggregates(now) {
		o.aggregates++
	}
	if (counted > 0) == (o.aggregates > 0) {
		return
	}
	for ref := range o.endpointSlices.Services() {
		if o.views[ref] != nil {
			o.touched[ref] = struct{}{}
		}
	}
}

func aggregates(a *v1beta1.BGPAdvertisement) bool {
	return a != nil && (a.Spec.AggregationLength != nil || a.Spec.AggregationLengthV6 != nil)
}

// slim keeps of an EndpointSlice what is read here: where endpoints are, whether they serve, and
// which ports, in which pods may differ.
func slim(object any) (any, error) {
	s, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil
	}
	s.ManagedFields, s.Annotations, s.OwnerReferences = nil, nil, nil
	labels := map[string]string{}
	for _, name := range []string{discoveryv1.LabelServiceName, corev1.IsHeadlessService} {
		if value, has := s.Labels[name]; has {
			labels[name] = value
		}
	}
	s.Labels = labels
	for i := range s.Ports {
		p := &s.Ports[i]
		*p = discoveryv1.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		*e = discoveryv1.Endpoint{Addresses: e.Addresses[:min(1, len(e.Addresses))], Conditions: e.Conditions, NodeName: e.NodeName}
	}
	return s, nil
}
