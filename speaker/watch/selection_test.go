package watch_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/view"
)

// ranges waits until these are all ranges that ClusterIPs are from.
func (o observed) ranges(want ...string) {
	o.Helper()
	o.sees("the ranges "+strings.Join(want, ", "), func(c *view.Cluster) bool {
		return slices.EqualFunc(c.ServiceRanges, want, func(r netip.Prefix, text string) bool { return r.String() == text })
	})
}

// testServiceCIDRs: the ranges are those of all ServiceCIDRs, at once as they come and go.
// One that is being deleted is there until it is gone, since Services may have its addresses.
func testServiceCIDRs(t *testing.T, server *apiserver.Server) {
	o := observe(t, server)
	own := []string{"10.96.0.0/16", "fd00:10:96::/112"} // the API server's
	o.ranges(own...)
	more := &networkingv1.ServiceCIDR{ObjectMeta: meta("", "more", nil), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.99.0.0/24"}}}
	o.create(more, &networkingv1.ServiceCIDR{ObjectMeta: meta("", "again", nil), Spec: more.Spec})
	all := []string{own[0], "10.99.0.0/24", own[1]}
	o.ranges(all...)
	if err := o.Delete(o.Context(), more); err != nil {
		o.Fatal(err)
	}
	o.create(&networkingv1.ServiceCIDR{ObjectMeta: meta("", "later", nil), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.99.7.0/24"}}})
	o.ranges(own[0], "10.99.0.0/24", "10.99.7.0/24", own[1]) // another has the same range as the one that goes

	held := &networkingv1.ServiceCIDR{}
	held.Name, held.Finalizers = "held", []string{"example.com/held"}
	held.Spec.CIDRs = []string{"fd00:99::/112"}
	o.create(held)
	o.ranges(own[0], "10.99.0.0/24", "10.99.7.0/24", own[1], "fd00:99::/112")
	if err := o.Delete(o.Context(), held); err != nil {
		o.Fatal(err)
	}
	o.create(&networkingv1.ServiceCIDR{ObjectMeta: meta("", "last", nil), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.99.8.0/24"}}})
	o.ranges(own[0], "10.99.0.0/24", "10.99.7.0/24", "10.99.8.0/24", own[1], "fd00:99::/112")
	if err := o.Patch(o.Context(), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		o.Fatal(err)
	}
	o.ranges(own[0], "10.99.0.0/24", "10.99.7.0/24", "10.99.8.0/24", own[1])
}

// TestAnAPIServerWithoutServiceCIDRs, as those before Kubernetes 1.33 are: all else is there, and that they are not is told once.
func TestAnAPIServerWithoutServiceCIDRs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	before133 := func(server *envtest.APIServer) {
		server.Configure().Set("runtime-config", "networking.k8s.io/v1/servicecidrs=false,networking.k8s.io/v1beta1/servicecidrs=false")
	}
	o := observeOn(t, apiserver.Start(t, apiserver.ManyServices, before133), slog.New(slog.NewTextHandler(&log, nil)))
	c := o.sees("the kinds of ours", func(c *view.Cluster) bool { return c.Configured })
	if len(c.ServiceRanges) > 0 {
		t.Errorf("the ranges are %v", c.ServiceRanges)
	}
	o.create(slice("web-a", "web", "10.0.0.1"))
	o.sees("a change", func(c *view.Cluster) bool {
		return len(c.Endpoints.Of(view.Ref{Namespace: "default", Name: "web"})) == 1
	})
	o.end()
	if n := strings.Count(log.String(), "ServiceCIDR"); n != 1 || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("it is told %d times, want once and no error: %s", n, log.String())
	}
}

// testLabelsOfOtherProxiesAndOfHeadlessServices: of a Service the label of another proxy's
// name counts, whatever its value, of a slice that of headless Services; neither counts on
// the other, nor who manages a slice. All are toggled at run time.
func testLabelsOfOtherProxiesAndOfHeadlessServices(t *testing.T, server *apiserver.Server) {
	const proxyName, managedBy = "service.kubernetes.io/service-proxy-name", "endpointslice.kubernetes.io/managed-by"
	o := observe(t, server)
	web := view.Ref{Namespace: "default", Name: "web"}
	service := &corev1.Service{
		ObjectMeta: meta("default", "web", nil), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	endpoints := slice("web-a", "web", "10.0.0.1")
	o.create(service, endpoints)
	label := func(key string, value *string, of ...metav1.Object) {
		t.Helper()
		for _, object := range of {
			labels := object.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			delete(labels, key)
			if value != nil {
				labels[key] = *value
			}
			object.SetLabels(labels)
		}
		if err := o.Update(o.Context(), service); err != nil {
			t.Fatal(err)
		}
		if err := o.Update(o.Context(), endpoints); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, elsewhere bool, n int) {
		t.Helper()
		o.sees(what, func(c *view.Cluster) bool {
			s := c.Services[web]
			return s != nil && s.ProxiedElsewhere == elsewhere && len(c.Endpoints.Of(web)) == n
		})
	}
	is("both", false, 1)
	for _, value := range []string{"", "kube-proxy"} {
		label(proxyName, &value, service, endpoints)
		is("a Service of another proxy, with its endpoints", true, 1)
		label(proxyName, nil, service)
		is("the Service again, though its slice names another proxy", false, 1)
		label(proxyName, nil, endpoints)
		label(corev1.IsHeadlessService, &value, service, endpoints)
		is("the Service without the slice", false, 0)
		label(corev1.IsHeadlessService, nil, service, endpoints)
		is("both again", false, 1)
	}
	for i, manager := range []string{"endpointslicemirroring-controller.k8s.io", "nobody"} {
		endpoints.Endpoints[0].Addresses[0] = []string{"10.0.0.7", "10.0.0.8"}[i]
		label(managedBy, &manager, endpoints)
		o.sees("the slice, whoever manages it", func(c *view.Cluster) bool {
			all := c.Endpoints.Of(web)
			return len(all) == 1 && all[0].Addr.String() == endpoints.Endpoints[0].Addresses[0]
		})
	}
}
