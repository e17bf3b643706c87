package hellokey

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
)

func TestMain(m *testing.M) { netlab.Isolated(m.Run) }

// Who empties the Secret again and again has one key put back each time, so that nodes that hear of it late
// know it, too. After a key of somebody else's it is another one: that may have replaced it on purpose.
func TestWhichKeyIsPutBack(t *testing.T) {
	api, err := client.New(apiserver.Start(t).Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{client: api, timeout: time.Minute, events: events.NewFakeRecorder(100), log: testlog.New(t)}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: v1beta1.HelloSecret}}
	reconciled := func() string {
		t.Helper()
		if _, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(secret)}); err != nil {
			t.Fatal(err)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			t.Fatal(err)
		}
		return string(secret.Data[v1beta1.HelloSecretKey])
	}
	write := func(key string) {
		t.Helper()
		secret.Data = map[string][]byte{v1beta1.HelloSecretKey: []byte(key)}
		if err := api.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	first := reconciled()
	for range 3 {
		write("")
		if got := reconciled(); got != first || len(got) != size {
			t.Errorf("put %d bytes back, the same as before: %t", len(got), got == first)
		}
		if reconciled() != first {
			t.Error("what is there is replaced")
		}
	}
	write("another")
	if reconciled() != "another" {
		t.Error("a key of somebody else's is replaced")
	}
	write("")
	second := reconciled()
	if second == first || len(second) != size {
		t.Errorf("after another key came %d bytes, the same as before that: %t", len(second), second == first)
	}
	if err := api.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	third := reconciled()
	if third == second || len(third) != size {
		t.Errorf("in a new Secret are %d bytes, the same as before: %t", len(third), third == second)
	}
	// A template makes it anew, and empty, before anybody looks.
	if err := api.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: v1beta1.HelloSecret}}); err != nil {
		t.Fatal(err)
	}
	if fourth := reconciled(); fourth == third || len(fourth) != size {
		t.Errorf("in a Secret that is made anew are %d bytes, the same as before: %t", len(fourth), fourth == third)
	}
}
