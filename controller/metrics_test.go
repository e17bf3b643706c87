package main

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testSecureMetrics reads the metrics of a replica that does not lead. The fence of the lease stops its writes, and not its reviews.
func testSecureMetrics(t *testing.T, c *cluster) {
	c.temporary(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reviews"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})
	c.temporary(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}})
	reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}}
	c.temporary(t, reader)
	made := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), reader, made); err != nil {
		t.Fatal(err)
	}
	c.start(t, func(o *options) { o.leaderElect = true })
	c.pool(t, "p", "192.0.2.0/24")
	c.holds(t, c.service(t, "barrier"), "192.0.2.0") // so that the first one leads
	metrics := freeAddress(t)
	c.start(t, func(o *options) { o.leaderElect, o.metrics.Address, o.metrics.On = true, metrics, true })

	answers := func(token string, want int) {
		t.Helper()
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+metrics+"/metrics", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				request.Header.Set("Authorization", "Bearer "+token)
			}
			response, err := client.Do(request)
			if err == nil {
				_ = response.Body.Close()
				if response.StatusCode == want {
					return
				}
			}
			if time.Since(began) > patience {
				t.Fatalf("metrics are answered by %+v, %v, want %d", response, err, want)
			}
		}
	}
	answers("", http.StatusUnauthorized)
	answers(made.Status.Token, http.StatusForbidden)
	c.temporary(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reads"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "reader"}},
	})
	answers(made.Status.Token, http.StatusOK)
}
