package charts_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// A port that was free when the API server chose it must be free when it is bound.
func TestMain(m *testing.M) { netlab.Isolated(m.Run) }

// TestTheChartInACluster are the tests that share one, since each takes seconds of a processor to start. None of the first sees what the
// others make, and the last have the cluster to themselves: they install the chart, and take the kinds away.
func TestTheChartInACluster(t *testing.T) {
	t.Parallel()
	config := apiserver.Start(t).Config
	asAdmin(t, config).create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	t.Run("beside one another", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *rest.Config){
			"pod security": testPodSecurity, "configuration from values": testConfigFromValues, "notes": testNotes,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, config)
			})
		}
	})
	t.Run("the hook of an uninstall", func(t *testing.T) { testUninstallHook(t, config) })
	t.Run("kinds of another release", func(t *testing.T) { testKindsOfAnotherRelease(t, config) })
	t.Run("a downgrade that would lose fields", func(t *testing.T) { testADowngradeThatWouldLoseFields(t, config) })
}

// TestRights are the tests that share an API server with what the chart installs of rights. What one makes is gone for the next, but
// the passwords that the last one has speakers read.
func TestRights(t *testing.T) {
	t.Parallel()
	all := newAuthority(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *authority)
	}{
		{"what a speaker may not", testWhatASpeakerMayNot},
		{"speakers write with their tokens", testSpeakersWriteWithTheirTokens},
		{"what a controller may not", testWhatAControllerMayNot},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := *all
			a.t = t
			test.run(t, &a)
		})
		for _, kind := range []client.Object{&corev1.Secret{}, &v1beta1.NodeForwarding{}, &v1beta1.BGPSession{}, &v1beta1.L2Address{}} {
			if err := all.DeleteAllOf(t.Context(), kind, client.InNamespace(namespace)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
