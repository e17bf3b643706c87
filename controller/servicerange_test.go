package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testServiceRange: what ClusterIPs are from is given to nobody, also where the range
// was added later, and the pool says so.
func testServiceRange(t *testing.T, c *cluster) {
	c.start(t)
	pool := c.pool(t, "p", "10.96.255.0-10.97.0.1", "198.51.100.0/30") // the API server has 10.96.0.0/16
	first := c.service(t, "first")
	c.holds(t, first, "10.97.0.0")
	c.refused(t, c.service(t, "asking", asking(v1beta1.AnnotationAddresses, "10.96.255.7")), "RequestUnusable")
	c.inUse(t, pool, 5, "10.96.0.0/16")

	c.temporary(t, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"198.51.100.0/24"}}})
	c.inUse(t, pool, 1, "10.96.0.0/16", "198.51.100.0/24")
	c.holds(t, c.service(t, "second"), "10.97.0.1")
	c.refused(t, c.service(t, "third"), "PoolExhausted")
	c.holds(t, first, "10.97.0.0")
}

// inUse waits until the pool tells that the cluster uses these addresses of it, and has
// so many free ones.
func (c *cluster) inUse(t *testing.T, pool *v1beta1.IPAddressPool, available int64, addresses ...string) {
	t.Helper()
	until(t, c, pool, "told that the cluster uses addresses of it", func(p *v1beta1.IPAddressPool) bool {
		ready := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.Reason == "AddressesInUse" && p.Status.AvailableIPv4 == available &&
			!slices.ContainsFunc(addresses, func(a string) bool { return !strings.Contains(ready.Message, a) })
	})
}

// testOlderServer: an API server without the kind ServiceCIDR is served as well. The
// ClusterIPs of all Services are left out then.
func testOlderServer(t *testing.T, c *cluster) {
	older := *c
	older.controller = rest.CopyConfig(c.controller)
	older.controller.Wrap(func(next http.RoundTripper) http.RoundTripper { return kubernetes131{next} })
	older.start(t)
	c.service(t, "internal", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, "10.96.0.7"
	})
	pool := c.pool(t, "p", "10.96.0.7-10.96.0.9")
	c.holds(t, c.service(t, "first", func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.6" }), "10.96.0.8")
	c.inUse(t, pool, 1, "10.96.0.7, which is the ClusterIP of Service default/internal")
}

// kubernetes131 is the API server as it was before there were ServiceCIDRs.
type kubernetes131 struct{ http.RoundTripper }

func (k kubernetes131) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	switch {
	case strings.Contains(r.Header.Get("Accept"), "APIGroupDiscoveryList"):
		r.Header.Set("Accept", "application/json") // kinds are told group by group
	case strings.HasSuffix(r.URL.Path, "/servicecidrs"):
		r.URL.Path += "-unknown"
	case strings.HasSuffix(r.URL.Path, "/"+networkingv1.SchemeGroupVersion.String()):
		return k.without(r, "ServiceCIDR")
	}
	return k.RoundTripper.RoundTrip(r)
}

// without takes a kind out of the list of what a group has.
func (k kubernetes131) without(r *http.Request, kind string) (*http.Response, error) {
	r.Header.Set("Accept", "application/json")
	response, err := k.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var list metav1.APIResourceList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	list.APIResources = slices.DeleteFunc(list.APIResources, func(resource metav1.APIResource) bool { return resource.Kind == kind })
	body, err := json.Marshal(list)
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Del("Content-Length")
	return response, err
}
