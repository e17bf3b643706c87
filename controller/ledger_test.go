package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// cooledPool makes a pool whose freed addresses rest.
func (c *cluster) cooledPool(t *testing.T, rest time.Duration, addresses ...string) *v1beta1.IPAddressPool {
	t.Helper()
	p := &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1beta1.IPAddressPoolSpec{Addresses: addresses, CoolDown: &metav1.Duration{Duration: rest}},
	}
	c.temporary(t, p)
	return p
}

// ledger is what stands in the ConfigMaps of the ledger, by address.
func (c *cluster) ledger(t *testing.T) map[string]string {
	t.Helper()
	var all corev1.ConfigMapList
	if err := c.List(t.Context(), &all, client.InNamespace(defaultNamespace), client.HasLabels{"fairlead.dev/ledger"}); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range all.Items {
		maps.Copy(found, m.Data)
	}
	return found
}

// blank removes what earlier tests have left of the ledger.
func (c *cluster) blank(t *testing.T) {
	t.Helper()
	if err := c.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(defaultNamespace), client.HasLabels{"fairlead.dev/ledger"}); err != nil {
		t.Fatal(err)
	}
}

// recorded waits until the ledger has exactly these entries. In each of them "until" stands
// for any end of a rest.
func (c *cluster) recorded(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		got = nil
		for a, text := range c.ledger(t) {
			if owner, until, rests := strings.Cut(text, " until "); rests {
				if _, err := time.Parse(time.RFC3339, until); err == nil {
					text = owner + " until"
				}
			}
			got = append(got, a+" "+text)
		}
		if slices.Sort(got); slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("the ledger has %q, want %q", got, want)
}

// testLedger: what is deleted while no controller runs rests, and its owner gets it back.
func testLedger(t *testing.T, c *cluster) {
	c.blank(t)
	stop := c.start(t)
	c.pool(t, "other", "198.51.100.0/24")
	plain := c.service(t, "plain", asking(v1beta1.AnnotationPool, "other"))
	c.holds(t, plain, "198.51.100.0")
	if got := c.ledger(t); len(got) > 0 {
		t.Errorf("the ledger has %v of a pool without coolDown", got)
	}
	const rest = 8 * time.Second
	pool := c.cooledPool(t, rest, "192.0.2.1-192.0.2.2", "2001:db8::/127")
	first := c.service(t, "first", dualStack, asking(v1beta1.AnnotationAddresses, "192.0.2.1,2001:db8::1"))
	c.holds(t, first, "192.0.2.1", "2001:db8::1")
	want := []string{"192.0.2.1 default/first", "2001-db8--1 default/first"}
	if got := c.ledger(t); fmt.Sprint(got) != fmt.Sprint(map[string]string{"192.0.2.1": "default/first", "2001-db8--1": "default/first"}) {
		t.Errorf("the ledger has %v after the address was shown, want %v", got, want)
	}
	kept := c.reservation(t, "kept", v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.2"}})
	c.reserves(t, kept, v1beta1.ReasonAllocated, "192.0.2.2")
	c.recorded(t, want[0], "192.0.2.2 default/kept", want[1])

	stop()
	for _, object := range []client.Object{first, kept} {
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	gone := time.Now()
	c.start(t)
	second := c.service(t, "second", asking(v1beta1.AnnotationAddresses, "192.0.2.1"))
	c.refused(t, second, "AddressCooling")
	third := c.service(t, "third", asking(v1beta1.AnnotationAddresses, "192.0.2.2"))
	c.refused(t, third, "AddressCooling")
	c.recorded(t, "192.0.2.1 default/first until", "192.0.2.2 default/kept until", "2001-db8--1 default/first until")
	until(t, c, pool, "listing what rests", func(p *v1beta1.IPAddressPool) bool {
		return len(p.Status.CoolingDown) == 3 && p.Status.CoolingDown[0].Service == "default/first" && p.Status.AvailableIPv4 == 0
	})
	again := c.service(t, "first", dualStack)
	c.holds(t, again, "192.0.2.1", "2001:db8::1")
	c.holds(t, third, "192.0.2.2") // in time, with nothing else to wake the controller
	if early := rest - time.Since(gone); early > 0 {
		t.Errorf("an address was given %v too soon", early)
	}
	c.refused(t, second, "RequestTaken")
	c.recorded(t, "192.0.2.1 default/first", "192.0.2.2 default/third", "2001-db8--1 default/first")
	update(t, c, pool, func(p *v1beta1.IPAddressPool) { p.Spec.CoolDown = nil })
	c.recorded(t)
}

// testLedgerForbidden: without the right to write it, addresses are given all the same.
func testLedgerForbidden(t *testing.T, c *cluster) {
	c.blank(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: user}}
	until(t, c, role, "there", func(*rbacv1.Role) bool { return true })
	before := role.DeepCopy().Rules
	ready := func(reason, text string) func(*v1beta1.IPAddressPool) bool {
		return func(p *v1beta1.IPAddressPool) bool {
			condition := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
			return condition != nil && condition.Status == metav1.ConditionTrue && condition.Reason == reason && strings.Contains(condition.Message, text)
		}
	}
	for verb, name := range map[string]string{"list": "unread", "create": "unwritten"} {
		update(t, c, role, func(r *rbacv1.Role) {
			for i := range r.Rules {
				if slices.Contains(r.Rules[i].Resources, "configmaps") {
					r.Rules[i].Verbs = slices.DeleteFunc(slices.Clone(r.Rules[i].Verbs), func(v string) bool { return v == verb })
				}
			}
		})
		stop := c.start(t)
		pool := c.cooledPool(t, time.Minute, "192.0.2.1-192.0.2.2")
		s := c.service(t, name)
		c.holds(t, s, "192.0.2.1")
		until(t, c, pool, "told that it cannot "+verb, ready("LedgerUnwritten", "cannot "+verb+" resource"))
		c.told(t, pool, "LedgerUnwritten")
		update(t, c, role, func(r *rbacv1.Role) { r.Rules = before })
		c.recorded(t, "192.0.2.1 default/"+name)
		until(t, c, pool, "well again", ready(v1beta1.ReasonReady, ""))
		for _, object := range []client.Object{pool, s} {
			if err := c.Delete(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		c.recorded(t)
		stop()
	}
}

// testLedgerRepair: what others did to the ledger keeps nobody from an address, and is
// written over.
func testLedgerRepair(t *testing.T, c *cluster) {
	c.blank(t)
	stop := c.start(t)
	c.cooledPool(t, time.Minute, "192.0.2.0/28")
	first := c.service(t, "first")
	c.holds(t, first, "192.0.2.0")
	stop()
	object := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: "fairlead-ledger-192.0.2.0-24"}}
	}
	page := object()
	until(t, c, page, "there", func(*corev1.ConfigMap) bool { return true })
	update(t, c, page, func(m *corev1.ConfigMap) {
		m.Data = map[string]string{"nonsense": "nonsense", "192.0.2.0": "nonsense", "192.0.2.1": "default/gone until 9999-12-31T23:59:59Z", "192.0.3.1": "default/first"}
		m.BinaryData, m.Immutable = map[string][]byte{"192.0.2.2": {0}}, new(true)
	})
	alien := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: "alien", Labels: map[string]string{"fairlead.dev/ledger": ""}}}
	c.temporary(t, alien)
	c.start(t)
	second := c.service(t, "second")
	c.holds(t, second, "192.0.2.2")
	c.recorded(t, "192.0.2.0 default/first", "192.0.2.1 default/gone until", "192.0.2.2 default/second")

	if err := c.Delete(t.Context(), object()); err != nil {
		t.Fatal(err)
	}
	third := c.service(t, "third")
	c.holds(t, third, "192.0.2.3")
	c.recorded(t, "192.0.2.0 default/first", "192.0.2.1 default/gone until", "192.0.2.2 default/second", "192.0.2.3 default/third")

	page = object()
	until(t, c, page, "there", func(*corev1.ConfigMap) bool { return true })
	update(t, c, page, func(m *corev1.ConfigMap) { m.Labels, m.Data = nil, nil })
	fourth := c.service(t, "fourth")
	c.holds(t, fourth, "192.0.2.4")
	c.recorded(t, "192.0.2.0 default/first", "192.0.2.1 default/gone until", "192.0.2.2 default/second", "192.0.2.3 default/third", "192.0.2.4 default/fourth")
}
