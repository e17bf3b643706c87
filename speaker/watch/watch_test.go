package watch_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/watch"
)

// namespace is our own.
const namespace = "fairlead-system"

// patience is more than what does happen takes on a busy machine: client-go waits for a minute before it asks a server again
// that was away for long.
const patience = 3 * time.Minute

// observed is a watch on a real API server.
type observed struct {
	*testing.T
	*watch.Watch
	client.Client

	noted chan string // kinds of what changed
	end   func()      // ends the watch
}

// observe starts a watch after the cluster is prepared.
func observe(t *testing.T, server *apiserver.Server, prepare ...func(*testing.T, client.Client)) observed {
	return observeOn(t, server, slog.New(slog.DiscardHandler), prepare...)
}

// observeOn is observe with a log of the test's own.
func observeOn(t *testing.T, server *apiserver.Server, log *slog.Logger, prepare ...func(*testing.T, client.Client)) observed {
	return observeAs(t, server, watch.Config{Log: log}, prepare...)
}

// observeAs is observe by one who says more of itself.
func observeAs(t *testing.T, server *apiserver.Server, config watch.Config, prepare ...func(*testing.T, client.Client)) observed {
	api := connect(t, server)
	for _, p := range prepare {
		p(t, api)
	}
	noted := make(chan string, 1000)
	config.Noted = func(kind string) { noted <- kind }
	config.REST, config.Namespace, config.Speakers = server.Config, namespace, map[string]string{"app": "speaker"}
	w := watch.New(config)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	end := sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return observed{t, w, api, noted, end}
}

func (o observed) create(objects ...client.Object) {
	o.Helper()
	for _, object := range objects {
		if err := o.Create(o.Context(), object); err != nil {
			o.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// sees waits for a snapshot that is as the test says; the snapshot changes only
// together with a wake-up.
func (o observed) sees(what string, ok func(*view.Cluster) bool) *view.Cluster {
	o.Helper()
	limit := time.After(patience)
	for {
		if c := o.Snapshot(); c != nil && ok(c) {
			return c
		}
		select {
		case <-o.Changed():
		case <-limit:
			o.Fatalf("never seen: %s; the last snapshot is %+v", what, o.Snapshot())
		}
	}
}

// drain returns the kinds of the changes that were noted since it was called last.
func (o observed) drain() []string {
	var kinds []string
	for len(o.noted) > 0 {
		kinds = append(kinds, <-o.noted)
	}
	return kinds
}

func meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

func slice(name, service, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: meta("default", name, map[string]string{discoveryv1.LabelServiceName: service}), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:     []discoveryv1.EndpointPort{{Port: new(int32(80))}},
	}
}

func testWatch(t *testing.T, server *apiserver.Server) {
	o := observe(t, server)
	web := view.Ref{Namespace: "default", Name: "web"}
	endpoints := func(want ...string) func(*view.Cluster) bool {
		return func(c *view.Cluster) bool {
			var got []string
			for _, e := range c.Endpoints.Of(web) {
				got = append(got, e.Addr.String())
			}
			return fmt.Sprint(got) == fmt.Sprint(want)
		}
	}
	o.sees("the kinds of ours", func(c *view.Cluster) bool { return c.Configured })

	o.create(&corev1.Service{
		ObjectMeta: meta("default", "web", nil), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, slice("web-a", "web", "10.0.0.1"), slice("web-b", "web", "10.0.0.2"))
	before := o.sees("both slices", endpoints("10.0.0.1", "10.0.0.2"))

	t.Run("a slice that moves to another Service", func(*testing.T) {
		moved := slice("web-b", "other", "10.0.0.2")
		if err := o.Update(o.Context(), moved); err != nil {
			o.Fatal(err)
		}
		o.sees("one slice left", endpoints("10.0.0.1"))
		if !endpoints("10.0.0.1", "10.0.0.2")(before) {
			t.Error("an old snapshot was written to")
		}
	})
	t.Run("the label of headless Services comes and goes", func(*testing.T) {
		toggled := slice("web-a", "web", "10.0.0.1")
		toggled.Labels[corev1.IsHeadlessService] = ""
		if err := o.Update(o.Context(), toggled); err != nil {
			o.Fatal(err)
		}
		o.sees("no endpoint", endpoints())
		if err := o.Update(o.Context(), slice("web-a", "web", "10.0.0.1")); err != nil {
			o.Fatal(err)
		}
		o.sees("the endpoint again", endpoints("10.0.0.1"))
	})
	t.Run("a Service that nothing has changed keeps its value", func(*testing.T) {
		held := o.Snapshot().Services[web]
		o.create(slice("web-c", "web", "10.0.0.3"))
		if now := o.sees("a new endpoint", endpoints("10.0.0.1", "10.0.0.3")); now.Services[web] != held {
			t.Error("an unchanged Service is another value")
		}
	})
	t.Run("a Secret makes a peer usable", func(*testing.T) {
		o.create(&v1beta1.BGPPeer{
			ObjectMeta: meta("", "tor", nil),
			Spec: v1beta1.BGPPeerSpec{
				MyASN: 64500, PeerASN: 64512, PeerAddress: "192.0.2.1", PasswordSecret: &v1beta1.SecretReference{Name: "tor"},
			},
		})
		c := o.sees("a peer that lacks its Secret", func(c *view.Cluster) bool {
			return c.BGPPeers["tor"] != nil && c.BGPPeers["tor"].Unusable != nil
		})
		if len(c.Problems) != 1 {
			t.Errorf("problems %v, want the missing Secret", c.Problems)
		}
		o.create(&corev1.Secret{ObjectMeta: meta(namespace, "tor", nil), Data: map[string][]byte{"password": []byte("p")}},
			&corev1.Secret{ObjectMeta: meta(namespace, "fairlead-hello", nil), Data: map[string][]byte{"key": []byte("k")}},
			&corev1.Secret{ObjectMeta: meta("default", "tor", nil), Data: map[string][]byte{"password": []byte("another")}})
		o.sees("the peer with its password, and the key", func(c *view.Cluster) bool {
			return c.BGPPeers["tor"].Unusable == nil && string(c.BGPPeers["tor"].Password) == "p" && string(c.HelloKey) == "k"
		})
	})
	t.Run("a slice of names is told of until it is gone", func(*testing.T) {
		names := slice("names", "web", "host.example.com")
		names.AddressType = discoveryv1.AddressTypeFQDN
		o.create(names)
		c := o.sees("a problem", func(c *view.Cluster) bool { return len(c.Problems) == 1 })
		if p := c.Problems[0]; p.Object.String() != "EndpointSlice/default/names" || p.Reason != "Unreadable" {
			t.Errorf("the problem is %s", p)
		}
		if !endpoints("10.0.0.1", "10.0.0.3")(c) {
			t.Errorf("the endpoints are %v", c.Endpoints.Of(web))
		}
		if err := o.Delete(o.Context(), names); err != nil {
			o.Fatal(err)
		}
		o.sees("none", func(c *view.Cluster) bool { return len(c.Problems) == 0 })
	})
	t.Run("pools and advertisements", func(*testing.T) {
		o.create(&v1beta1.IPAddressPool{ObjectMeta: meta("", "p", nil), Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"192.0.2.0/24"}}},
			&v1beta1.L2Advertisement{ObjectMeta: meta("", "l2", nil)}, &v1beta1.BGPAdvertisement{ObjectMeta: meta("", "bgp", nil)})
		o.sees("all three", func(c *view.Cluster) bool {
			return c.Pools["p"] != nil && c.Pools["p"].Contains(netip.MustParseAddr("192.0.2.1")) &&
				c.L2Advertisements["l2"] != nil && c.BGPAdvertisements["bgp"] != nil
		})
	})
	t.Run("deletion", func(*testing.T) {
		for _, object := range []client.Object{
			&corev1.Service{ObjectMeta: meta("default", "web", nil)}, slice("web-a", "web", "10.0.0.1"), slice("web-c", "web", "10.0.0.3"),
			&v1beta1.BGPPeer{ObjectMeta: meta("", "tor", nil)}, &v1beta1.IPAddressPool{ObjectMeta: meta("", "p", nil)},
		} {
			if err := o.Delete(o.Context(), object); err != nil {
				o.Fatal(err)
			}
		}
		o.sees("all of it gone", func(c *view.Cluster) bool {
			return c.Services[web] == nil && len(c.Endpoints.Of(web)) == 0 && len(c.BGPPeers)+len(c.Pools)+len(c.Problems) == 0
		})
	})
}

// Who falls silent, or is heard again, concerns the Services with endpoints there alone.
func testNodesFallSilent(t *testing.T, server *apiserver.Server) {
	o := observe(t, server)
	web := view.Ref{Namespace: "default", Name: "web"}
	on := slice("web-a", "web", "10.0.0.1")
	on.Endpoints[0].NodeName = new("far")
	o.create(&corev1.Node{ObjectMeta: meta("", "far", nil)}, &corev1.Node{ObjectMeta: meta("", "near", nil)}, on)
	o.sees("the nodes and the endpoint", func(c *view.Cluster) bool {
		return c.Configured && c.Nodes["far"] != nil && c.Nodes["near"] != nil && len(c.Endpoints.Of(web)) == 1
	})
	for _, turn := range []struct {
		silent  []string
		touches bool
	}{{[]string{"far"}, true}, {[]string{"far", "near"}, false}, {[]string{"near"}, true}, {nil, false}} {
		o.SetRollCall(view.RollCall{Alive: []string{"a", "b"}, Silent: turn.silent})
		c := o.sees("who fell", func(c *view.Cluster) bool { return len(c.Fallen) == len(turn.silent) })
		for _, name := range turn.silent {
			if _, fell := c.Fallen[name]; !fell {
				t.Errorf("%v are down, want %v", c.Fallen, turn.silent)
			}
		}
		if _, touched := c.Touched[web]; touched != turn.touches {
			t.Errorf("with %v silent the Service is looked at again: %t, want %t", turn.silent, touched, turn.touches)
		}
	}
}

// Only the DaemonSet of the speakers, in their namespace, tells whether more are to come.
func testWhetherTheDaemonSetStays(t *testing.T, server *apiserver.Server) {
	o := observeAs(t, server, watch.Config{Log: slog.New(slog.DiscardHandler), DaemonSet: "speaker"})
	deployed := func(c *view.Cluster) bool { return c.Deployed }
	set := func(namespace, name string) *appsv1.DaemonSet {
		app := map[string]string{"app": name}
		return &appsv1.DaemonSet{ObjectMeta: meta(namespace, name, nil), Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
			},
		}}
	}
	ours := set(namespace, "speaker")
	o.create(ours)
	o.sees("the DaemonSet", deployed)

	o.create(set("default", "speaker"), set(namespace, "other"))
	if err := o.Delete(o.Context(), ours); err != nil {
		t.Fatal(err)
	}
	o.sees("none of ours", func(c *view.Cluster) bool { return !c.Deployed })

	slow := set(namespace, "speaker")
	slow.Finalizers = []string{"example.com/slow"}
	o.create(slow)
	o.sees("the DaemonSet again", deployed)
	if err := o.Delete(o.Context(), slow); err != nil {
		t.Fatal(err)
	}
	o.sees("one that goes", func(c *view.Cluster) bool { return !c.Deployed })
	if err := o.Patch(o.Context(), slow, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
}

// A change that names what triggered it is told of once, with that time.
func testTriggersOfChanges(t *testing.T, server *apiserver.Server) {
	o := observe(t, server)
	web := view.EndpointsOf{Service: view.Ref{Namespace: "default", Name: "web"}, Family: addr.IPv4}
	has := func(address string) func(*view.Cluster) bool {
		return func(c *view.Cluster) bool {
			endpoints := c.Endpoints.Of(web.Service)
			return len(endpoints) == 1 && endpoints[0].Addr.String() == address
		}
	}
	update := func(address string, trigger time.Time) {
		changed := slice("web-a", "web", address)
		changed.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger.Format(time.RFC3339Nano)}
		if err := o.Update(o.Context(), changed); err != nil {
			o.Fatal(err)
		}
	}
	// The API server makes a Service for itself at some time after it is ready.
	o.sees("the Service of the API server", func(c *view.Cluster) bool {
		itself := view.Ref{Namespace: "default", Name: "kubernetes"}
		return c.Services[itself] != nil && len(c.Endpoints.Of(itself)) > 0
	})
	o.create(slice("web-a", "web", "10.0.0.1"))
	before := o.sees("the slice", has("10.0.0.1"))
	o.drain()

	at := time.Now().UTC()
	update("10.0.0.1", at) // no endpoint changes, so nothing is triggered
	update("10.0.0.4", at.Add(time.Second))
	c := o.sees("the change", has("10.0.0.4"))
	if got := c.Triggers[web]; !got.Equal(at.Add(time.Second)) {
		t.Errorf("triggered at %s, want %s", got, at.Add(time.Second))
	}
	if kinds := o.drain(); !slices.Equal(kinds, []string{"EndpointSlice"}) {
		t.Errorf("changes of %q are noted, want the one that changed an endpoint", kinds)
	}
	if len(before.Triggers) != 0 {
		t.Errorf("an old snapshot has %v", before.Triggers)
	}
}

// Forwarding must not wait for kinds that a cluster does not have: a missing CRD
// would otherwise stop every Service.
func testCoreKindsDoNotWaitForOurs(t *testing.T, server *apiserver.Server) {
	o := observe(t, server, removeOurKinds)
	if c := o.sees("the core kinds", func(*view.Cluster) bool { return true }); c.Configured {
		t.Error("the cluster has none of our kinds, and the snapshot says that they were read")
	}
}

// removeOurKinds takes the CRDs from a cluster. The API server serves their objects for
// a moment longer.
func removeOurKinds(t *testing.T, api client.Client) {
	t.Helper()
	if err := api.DeleteAllOf(t.Context(), &apiextensionsv1.CustomResourceDefinition{}); err != nil {
		t.Fatal(err)
	}
	kinds := []client.ObjectList{&v1beta1.IPAddressPoolList{}, &v1beta1.L2AdvertisementList{}, &v1beta1.BGPAdvertisementList{}, &v1beta1.BGPPeerList{}}
	served := func(list client.ObjectList) bool {
		err := api.List(t.Context(), list)
		return !apierrors.IsNotFound(err) && !apimeta.IsNoMatchError(err)
	}
	for limit := time.Now().Add(patience); slices.ContainsFunc(kinds, served); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the CRDs do not go")
		}
	}
}
