package mirror

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// TestBriefPeerReadsAsWhole: what a node decides by a BGPPeer it keeps, such as which of two is older.
func TestBriefPeerReadsAsWhole(t *testing.T) {
	t.Parallel()
	whole := &v1beta1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{
			Name: "tor", UID: "1", CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0)), Labels: map[string]string{"rack": "7"},
		},
		Spec:   v1beta1.BGPPeerSpec{MyASN: 64500, PeerASN: 64512, PeerAddress: "192.0.2.1", BFDProfile: "fast"},
		Status: v1beta1.BGPPeerStatus{Sessions: "1/1"},
	}
	short, _ := brief(whole)
	read := func(p *v1beta1.BGPPeer) *view.BGPPeer {
		v, _ := fromkube.BGPPeer(p, func(string) (*corev1.Secret, bool) { return nil, false })
		return v
	}
	if read(whole).Created.IsZero() {
		t.Fatal("nothing is read of a BGPPeer's age")
	}
	if d := cmp.Diff(read(whole), read(short), cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("the view (-whole +brief):\n%s", d)
	}
	if len(short.Labels) > 0 || short.Status.Sessions != "" {
		t.Errorf("kept without need: %+v", short)
	}
}
