package watch_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// TestOnOneAPIServer are the tests that share one, since each takes seconds to start. They come one after the
// other, and each finds it empty.
func TestOnOneAPIServer(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	api := connect(t, server)
	if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: meta("", namespace, nil)}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *apiserver.Server){
		"what is watched":                                  testWatch,
		"nodes fall silent":                                testNodesFallSilent,
		"whether the DaemonSet stays":                      testWhetherTheDaemonSetStays,
		"triggers of changes":                              testTriggersOfChanges,
		"the own Node is remembered":                       testTheOwnNodeIsRemembered,
		"the first snapshot has what the own Node says":    testTheFirstSnapshotHasWhatTheOwnNodeSays,
		"podCIDRs that nobody writes are not waited for":   testPodCIDRsThatNobodyWritesAreNotWaitedFor,
		"the first snapshot has the own Node":              testTheFirstSnapshotHasTheOwnNode,
		"the own Node is waited for in vain":               testTheOwnNodeIsWaitedForInVain,
		"an API server that does not answer is told":       testAnAPIServerThatDoesNotAnswerIsTold,
		"the first snapshot is whole":                      testTheFirstSnapshotIsWhole,
		"labels of other proxies and of headless Services": testLabelsOfOtherProxiesAndOfHeadlessServices,
		"ServiceCIDRs":                                     testServiceCIDRs,
		"what reservations hold":                           testWhatReservationsHold,
		"a storm of changes is followed":                   testAStormOfChangesIsFollowed,
		"an empty key of the hellos replaces none":         testAnEmptyKeyOfTheHellosReplacesNone,
		"Secrets are read by name":                         testSecretsAreReadByName,
		"a kind that is forbidden is told once":            testAKindThatIsForbiddenIsToldOnce,
	} {
		t.Run(name, func(t *testing.T) { test(t, server) })
		empty(t, api)
	}
}

// TestWithoutKindsOfOurs are the tests that take CRDs away, the last one all of them.
func TestWithoutKindsOfOurs(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	t.Run("one that is missing is told once", func(t *testing.T) { testAKindThatIsMissingIsToldOnce(t, server) })
	t.Run("the core kinds do not wait for ours", func(t *testing.T) { testCoreKindsDoNotWaitForOurs(t, server) })
}

// connect makes a client for all kinds that tests create.
func connect(t *testing.T, server *apiserver.Server) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// empty deletes what tests create, and waits until the cache of the API server, which watches begin with,
// has none of it. What the API server has for itself stays.
func empty(t *testing.T, api client.Client) {
	t.Helper()
	for _, list := range []client.ObjectList{
		&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &corev1.NodeList{}, &corev1.SecretList{}, &appsv1.DaemonSetList{},
		&v1beta1.IPAddressPoolList{}, &v1beta1.L2AdvertisementList{}, &v1beta1.BGPAdvertisementList{}, &v1beta1.BGPPeerList{}, &v1beta1.IPReservationList{},
		&networkingv1.ServiceCIDRList{},
	} {
		for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if left := remove(t, api, list); left == 0 {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("what is listed by %T does not go", list)
			}
		}
	}
}

// remove deletes what the API server lists of one kind, and returns how many there were.
func remove(t *testing.T, api client.Client, list client.ObjectList) (n int) {
	t.Helper()
	err := api.List(t.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	err = apimeta.EachListItem(list, func(item runtime.Object) error {
		object, is := item.(client.Object)
		if !is || object.GetName() == "kubernetes" {
			return nil
		}
		n++
		return client.IgnoreNotFound(api.Delete(t.Context(), object))
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
