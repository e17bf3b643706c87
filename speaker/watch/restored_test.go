package watch_test

import (
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/view"
)

// A speaker goes on while etcd is restored to an older state, and sees that state: what was made since is gone, and what
// was deleted or changed since is as it was.
func TestEtcdIsRestored(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t, apiserver.Backups)
	o := observeOn(t, server, slog.New(slog.DiscardHandler))
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: meta("default", name, nil), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	}
	pool := func(name, addresses string) *v1beta1.IPAddressPool {
		return &v1beta1.IPAddressPool{ObjectMeta: meta("", name, nil), Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{addresses}}}
	}
	has := func(port int32, names ...string) func(*view.Cluster) bool {
		return func(c *view.Cluster) bool {
			for _, name := range names {
				s, ok := c.Services[view.Ref{Namespace: "default", Name: name}]
				if !ok || len(s.Ports) != 1 || int32(s.Ports[0].Port) != port {
					return false
				}
			}
			return len(c.Services) == len(names)+1 // and kubernetes
		}
	}
	changed, back := service("changed"), service("back")
	o.create(changed, back, pool("before", "192.0.2.0/24"))
	o.sees("what is there", has(80, "changed", "back"))
	restore := server.Backup(t)
	before := changed.DeepCopy()
	changed.Spec.Ports[0].Port = 81
	if err := o.Patch(t.Context(), changed, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := o.Delete(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	// The store comes further than it does by itself, and by the server's own writes, once it is back.
	for i := range 300 {
		before := changed.DeepCopy()
		changed.Annotations = map[string]string{"count": fmt.Sprint(i)}
		if err := o.Patch(t.Context(), changed, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	o.create(pool("since", "198.51.100.0/24"))
	o.sees("what came since", func(c *view.Cluster) bool { return has(81, "changed")(c) && len(c.Pools) == 2 })
	restore()
	o.sees("what was there", func(c *view.Cluster) bool { return has(80, "changed", "back")(c) && len(c.Pools) == 1 })
}
