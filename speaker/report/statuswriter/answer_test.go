package statuswriter_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

// silent lets the first write of each status have no answer.
type silent struct {
	http.RoundTripper
	sessions, forwardings *atomic.Bool // had none
}

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	for kind, had := range map[string]*atomic.Bool{"/bgpsessions/": s.sessions, "/nodeforwardings/": s.forwardings} {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, kind) && had.CompareAndSwap(false, true) {
			<-r.Context().Done()
			return nil, errors.New("no answer")
		}
	}
	return s.RoundTripper.RoundTrip(r)
}

// A write that the API server never answers is given up, and the state is told after all. Without a deadline it would be
// waited for until the connection ends, which may be never.
func testAWriteWithoutAnAnswerIsGivenUp(t *testing.T, c cluster) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	c.create(t, node)
	var sessions, forwardings atomic.Bool
	config := rest.CopyConfig(c.admin)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return silent{to, &sessions, &forwardings} })
	o, err := statuswriter.New("node1", config, testlog.New(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	o.Sessions(node.UID, map[string]bgp.State{"router": {Phase: bgp.Established, Since: time.Now()}}, nil)
	o.Forwarding(node.UID, v1beta1.NodeForwardingStatus{Mode: "nftables", Since: metav1.Now()})
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var session v1beta1.BGPSession
		var forwarding v1beta1.NodeForwarding
		of := errors.Join(
			c.Get(t.Context(), client.ObjectKey{Name: v1beta1.SessionName("node1", "router")}, &session),
			c.Get(t.Context(), client.ObjectKey{Name: "node1"}, &forwarding),
		)
		if of == nil && session.Status.State == v1beta1.SessionEstablished && forwarding.Status.Mode == "nftables" {
			break
		}
		if time.Since(began) > patience/2 {
			t.Fatalf("after a write without an answer the session is %q and the mode %q: %v", session.Status.State, forwarding.Status.Mode, of)
		}
	}
	if !sessions.Load() || !forwardings.Load() {
		t.Error("each write had an answer, so that this holds nothing")
	}
}
