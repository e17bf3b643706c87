package statuswriter_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// TestWhatIsWrittenToAnAPIServer are the tests that share one, since each takes seconds of a processor to start. They come one after the
// other, and each finds it empty.
func TestWhatIsWrittenToAnAPIServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, test := range map[string]func(*testing.T, cluster){
		"a mark of a speaker that lives is taken back":  testAMarkOfASpeakerThatLivesIsTakenBack,
		"a write without an answer is given up":         testAWriteWithoutAnAnswerIsGivenUp,
		"addresses say who answers":                     testAddressesSayWhoAnswers,
		"doubts are noted in the objects of others":     testDoubtsAreNotedInTheObjectsOfOthers,
		"doubts of a dead node are taken back":          testDoubtsOfADeadNodeAreTakenBack,
		"objects say what sessions do":                  testObjectsSayWhatSessionsDo,
		"the last to write is not the one that goes on": testTheLastToWriteIsNotTheOneThatGoesOn,
		"the object says how the forwarding does":       testTheObjectSaysHowTheForwardingDoes,
		"what a dead node said is marked":               testWhatADeadNodeSaidIsMarked,
		"what is deleted is made again":                 testWhatIsDeletedIsMadeAgain,
		"an address is back within a moment":            testWhoIsBackWithinAMoment,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
		c.empty(t)
	}
}

// empty deletes what tests create, and waits until the cache of the API server, which writers begin with, has none of it.
func (c cluster) empty(t *testing.T) {
	t.Helper()
	for list, object := range map[client.ObjectList]client.Object{
		&corev1.NodeList{}: &corev1.Node{}, &v1beta1.BGPSessionList{}: &v1beta1.BGPSession{},
		&v1beta1.L2AddressList{}: &v1beta1.L2Address{}, &v1beta1.NodeForwardingList{}: &v1beta1.NodeForwarding{},
	} {
		if err := c.DeleteAllOf(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if err := c.List(t.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
				t.Fatal(err)
			}
			if meta.LenList(list) == 0 {
				break
			}
			if time.Since(began) > patience {
				t.Fatalf("what is listed by %T does not go", list)
			}
		}
	}
}
