package main

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/passwords"
)

// The Role names the Secrets of the peers there are, also after it was changed or made anew; of no peers it has no
// rule, as one without names would be the right to read all.
func testPasswords(t *testing.T, c *cluster) {
	peer := func(name, secret string) *v1beta1.BGPPeer {
		p := &v1beta1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.BGPPeerSpec{MyASN: 64500, PeerASN: 64512, PeerAddress: "192.0.2.1"}}
		if secret != "" {
			p.Spec.PasswordSecret = &v1beta1.SecretReference{Name: secret}
		}
		c.create(t, p)
		return p
	}
	role := func() *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: passwords.Role}}
	}
	grants := func(names ...string) {
		t.Helper()
		until(t, c, role(), "the right to read the passwords alone", func(r *rbacv1.Role) bool {
			if len(names) == 0 {
				return len(r.Rules) == 0
			}
			return len(r.Rules) == 1 && slices.Equal(r.Rules[0].ResourceNames, names) && slices.Equal(r.Rules[0].Resources, []string{"secrets"}) &&
				slices.Equal(r.Rules[0].Verbs, []string{"list", "watch"})
		})
	}
	c.start(t)
	peer("without", "")
	two := peer("two", "b")
	first := role()
	c.create(t, first) // by an upgrade, say, while the controller runs
	grants("b")
	one := peer("one", "a")
	peer("three", "b")
	grants("a", "b")
	update(t, c, first, func(r *rbacv1.Role) {
		r.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}}}
	})
	grants("a", "b")
	if err := c.Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	grants("b")
	for _, name := range []string{two.Name, "three", "without"} {
		if err := c.Delete(t.Context(), &v1beta1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	grants()
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
}
