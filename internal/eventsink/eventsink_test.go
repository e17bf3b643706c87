package eventsink

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
)

// server answers the first requests with a status, and what follows as one that takes an Event.
type server struct {
	status, times int
	body          string
	asked         chan struct{} // once a request
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	answer := &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {r.Header.Get("Content-Type")}}}
	if s.times > 0 {
		s.times--
		answer.StatusCode, body = s.status, []byte(s.body)
		answer.Header.Set("Content-Type", "application/json")
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	s.asked <- struct{}{}
	return answer, nil
}

// TestAnEventOutlivesARefusalForNow: what an API server answers while it begins, or has no etcd, costs no Event.
func TestAnEventOutlivesARefusalForNow(t *testing.T) {
	const terminating = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"details":{"causes":[{"reason":"NamespaceTerminating"}]}}`
	for name, c := range map[string]struct {
		status int
		body   string
		again  bool
	}{
		"its roles are not read":     {http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, true},
		"its tokens are not":         {http.StatusUnauthorized, "", true},
		"etcd has no leader":         {http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: leader changed","code":500}`, true},
		"a proxy has no server":      {http.StatusServiceUnavailable, "", true},
		"it takes too long":          {http.StatusGatewayTimeout, "", true},
		"it is busy":                 {http.StatusTooManyRequests, "", true},
		"the Event is none":          {http.StatusUnprocessableEntity, "", false},
		"it is there":                {http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`, false},
		"the namespace is going":     {http.StatusForbidden, terminating, false},
		"there is no such namespace": {http.StatusNotFound, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{c.status, 3, c.body, make(chan struct{}, 100)}
				client, err := typed.NewForConfig(&rest.Config{Host: "192.0.2.11", Transport: s})
				if err != nil {
					t.Fatal(err)
				}
				b := NewBroadcaster(client)
				if err := b.StartRecordingToSinkWithContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer b.Shutdown()
				of := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
				b.NewRecorder(clientgoscheme.Scheme, "test").Eventf(of, nil, corev1.EventTypeNormal, "Allocated", "Allocate", "it has an address")
				time.Sleep(time.Minute)
				synctest.Wait()
				want := 1
				if c.again {
					want = 4
				}
				if asked := len(s.asked); asked != want {
					t.Errorf("written %d times, want %d", asked, want)
				}
			})
		})
	}
}
