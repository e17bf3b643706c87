package main

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testTaken: a Service whose address no node answers for, since another machine has it, keeps the address, and its condition
// is False until a node answers.
func testTaken(t *testing.T, c *cluster) {
	c.start(t)
	c.temporary(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "taken-a"}})
	c.temporary(t, &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "lan"}})
	c.pool(t, "p", "192.0.2.0/28")
	web := c.service(t, "web")
	c.holds(t, web, "192.0.2.0")
	address := &v1beta1.L2Address{
		ObjectMeta: metav1.ObjectMeta{Name: v1beta1.L2AddressName(netip.MustParseAddr("192.0.2.0"))}, Spec: v1beta1.L2AddressSpec{Address: "192.0.2.0"},
	}
	c.temporary(t, address)
	says := func(status metav1.ConditionStatus, reason, message string) {
		before := address.DeepCopy()
		address.Status.Conditions = []metav1.Condition{{
			Type: v1beta1.ConditionAnswering, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
		}}
		if err := c.Status().Patch(t.Context(), address, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	tells := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		until(t, c, web, reason+" "+message, func(s *corev1.Service) bool {
			told := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
			return told.Status == status && told.Reason == reason && (message == "" || told.Message == message) && slices.Equal(ips(s), []string{"192.0.2.0"})
		})
	}
	says(metav1.ConditionTrue, v1beta1.ReasonFirst, "node taken-a is the first of the candidates")
	tells(metav1.ConditionTrue, v1beta1.ReasonAllocated, "")
	for _, message := range []string{"node taken-a does not answer for 192.0.2.0: a station has it", "node taken-a does not answer for 192.0.2.0: another station has it"} {
		says(metav1.ConditionFalse, "AddressTaken", message)
		tells(metav1.ConditionFalse, "AddressTaken", "192.0.2.0 is announced by nobody: "+message)
	}
	c.told(t, web, "AddressTaken")
	says(metav1.ConditionTrue, v1beta1.ReasonFirst, "node taken-a is the first of the candidates")
	tells(metav1.ConditionTrue, v1beta1.ReasonAllocated, "")
	says(metav1.ConditionFalse, "AddressTaken", "node taken-a does not answer for 192.0.2.0: a station has it")
	tells(metav1.ConditionFalse, "AddressTaken", "")
	if err := c.Delete(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	tells(metav1.ConditionTrue, v1beta1.ReasonAllocated, "")
}
