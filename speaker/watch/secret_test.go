package watch_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/view"
)

// testAnEmptyKeyOfTheHellosReplacesNone: neither does a Secret that is gone.
func testAnEmptyKeyOfTheHellosReplacesNone(t *testing.T, server *apiserver.Server) {
	secret := &corev1.Secret{ObjectMeta: meta(namespace, "fairlead-hello", nil), Data: map[string][]byte{"key": []byte("k")}}
	o := observe(t, server)
	o.create(secret)
	has := func(key string, problems int) func(*view.Cluster) bool {
		return func(c *view.Cluster) bool { return string(c.HelloKey) == key && len(c.Problems) == problems }
	}
	o.sees("the key", has("k", 0))
	set := func(data map[string][]byte) {
		t.Helper()
		secret.Data = data
		if err := o.Update(o.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	set(map[string][]byte{"key": {}})
	c := o.sees("the key, and that it is gone", has("k", 1))
	if p := c.Problems[0]; p.Object.String() != "Secret/fairlead-system/fairlead-hello" || p.Reason != "HelloKeyMissing" {
		t.Errorf("the problem is %s", p)
	}
	set(map[string][]byte{"key": []byte("another")})
	o.sees("the next key", has("another", 0))
	set(nil)
	o.sees("that one, and that it is gone", has("another", 1))
	if err := o.Delete(o.Context(), secret, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	o.sees("that one, without a Secret", has("another", 0))
}
