package watch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
)

// TestANodeWithoutAKeySaysSo: what has never had a key has none, and its Node tells why.
func TestANodeWithoutAKeySaysSo(t *testing.T) {
	t.Parallel()
	o := newObjects("node1")
	o.Secrets[v1beta1.HelloSecret] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fairlead-system", Name: v1beta1.HelloSecret}}
	c := o.snapshot(nil)
	if c.HelloKey != "" || len(c.Problems) != 1 {
		t.Fatalf("the key is %q, the problems are %v", string(c.HelloKey), c.Problems)
	}
	if p := c.Problems[0]; p.Object.String() != "Node/node1" || p.Reason != v1beta1.ReasonHelloKeyMissing || !strings.Contains(p.Message, "Secret fairlead-system/fairlead-hello") {
		t.Errorf("the problem is %s", p)
	}
}
