package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// leave has the Secret be this one before a controller runs.
func (c *cluster) leave(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	before := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}}
	if err := client.IgnoreNotFound(c.Delete(t.Context(), before)); err != nil {
		t.Fatal(err)
	}
	c.create(t, secret)
}

// testHelloKeyLost has a Secret that somebody else made without a key, such as a template of
// GitOps, and that loses the one which it got. What else is in it stays as it is.
func testHelloKeyLost(t *testing.T, c *cluster) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: v1beta1.HelloSecret, Annotations: map[string]string{"of": "another"}},
		Data:       map[string][]byte{"note": []byte("not for the eyes of the controller")},
	}
	c.leave(t, secret)
	c.start(t)
	key := ""
	filled := func(s *corev1.Secret) bool { return len(s.Data[v1beta1.HelloSecretKey]) == 32 }
	for _, lost := range []func(*corev1.Secret){
		nil,
		func(s *corev1.Secret) { s.Data[v1beta1.HelloSecretKey] = []byte{} },
		func(s *corev1.Secret) { delete(s.Data, v1beta1.HelloSecretKey) },
	} {
		if lost != nil {
			update(t, c, secret, lost)
		}
		until(t, c, secret, "filled", filled)
		if got := string(secret.Data[v1beta1.HelloSecretKey]); key != "" && got != key {
			t.Error("another key is put back than the one that was lost")
		}
		key = string(secret.Data[v1beta1.HelloSecretKey])
		if string(secret.Data["note"]) != "not for the eyes of the controller" || secret.Annotations["of"] != "another" {
			t.Fatalf("the Secret is %v, %v", secret.Annotations, secret.Data)
		}
	}
	c.told(t, secret, "HelloKeyMade")
}

// testHelloKeyImmutable has a Secret that cannot be filled.
func testHelloKeyImmutable(t *testing.T, c *cluster) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: v1beta1.HelloSecret}, Immutable: new(true),
	}
	c.leave(t, secret)
	c.start(t)
	c.told(t, secret, "HelloKeyMissing")
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	again := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: v1beta1.HelloSecret}}
	until(t, c, again, "another one, and filled", func(s *corev1.Secret) bool { return len(s.Data[v1beta1.HelloSecretKey]) == 32 })
}
