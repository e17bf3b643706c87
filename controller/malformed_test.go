package main

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/admission"
	"fairlead.dev/fairlead/internal/testenv/malformed"
)

// testMalformed creates every object of the table: the API server refuses it and names
// the field, or a condition tells.
func testMalformed(t *testing.T, c *cluster) {
	c.start(t)
	for _, text := range malformed.Neighbours() {
		object := &unstructured.Unstructured{Object: admission.Parse(t, text)}
		status := object.DeepCopy()
		c.temporary(t, object)
		if object.GetKind() == "Node" {
			status.SetResourceVersion(object.GetResourceVersion())
			if err := c.Status().Update(t.Context(), status); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range malformed.Cases(t) {
		t.Run(m.Kind+"/"+m.Name, func(t *testing.T) {
			text := "{apiVersion: fairlead.dev/v1beta1, kind: " + m.Kind + ", metadata: {name: x}, spec: " + m.Spec + "}"
			switch m.Kind {
			case "IPReservation":
				text = strings.Replace(text, "{name: x}", "{name: x, namespace: default}", 1)
			case "Service":
				text = "{apiVersion: v1, kind: Service, metadata: {name: x, namespace: default, annotations: " + m.Annotations + "}, spec: " + m.Spec + "}"
			}
			object := &unstructured.Unstructured{Object: admission.Parse(t, text)}
			if m.Reason == "" {
				err := c.Create(t.Context(), object, client.DryRunAll)
				if m.Refused == "" && err != nil || m.Refused != "" && (err == nil || !strings.Contains(err.Error(), m.Refused)) {
					t.Errorf("the API server says %v, want %q", err, m.Refused)
				}
				return
			}
			c.temporary(t, object)
			until(t, c, object, "told "+m.Reason+": "+m.Message, func(o *unstructured.Unstructured) bool {
				var of struct {
					Status struct{ Conditions []metav1.Condition }
				}
				text, err := json.Marshal(o.Object)
				if err == nil {
					err = json.Unmarshal(text, &of)
				}
				told := meta.FindStatusCondition(of.Status.Conditions, tells(m.Kind))
				return err == nil && told != nil && told.Reason == m.Reason && strings.Contains(told.Message, m.Message)
			})
		})
	}
	c.holds(t, c.service(t, "fine"), "203.0.113.0") // whatever else there was
}

// tells is the condition that says what is wrong with an object of the kind.
func tells(kind string) string {
	switch kind {
	case "IPReservation":
		return v1beta1.ConditionReserved
	case "Service":
		return v1beta1.ConditionAllocated
	default:
		return v1beta1.ConditionReady
	}
}
