package storm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// source tells about Services, EndpointSlices and Nodes over HTTP like an API server, and of
// changes as fast as they are put in: no API server takes in so many.
type source struct {
	*httptest.Server
	begun   map[string][]any              // what is there at first, by resource
	changes map[string]chan *bytes.Buffer // lines of a watch, many at a time
	version atomic.Int64
}

// ourNamespace is the one whose pods and Secrets are watched. It has none.
const ourNamespace = "fairlead-system"

// resources are those that are told about; all others are not there.
var resources = map[string]metav1.APIResource{
	"services":       {Name: "services", Kind: "Service", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
	"endpointslices": {Name: "endpointslices", Kind: "EndpointSlice", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
	"pods":           {Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
	"secrets":        {Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
	"nodes":          {Name: "nodes", Kind: "Node", Verbs: metav1.Verbs{"list", "watch"}},
}

func newSource(t *testing.T, begun map[string][]any) *source {
	s := &source{begun: begun, changes: map[string]chan *bytes.Buffer{}}
	for resource := range resources {
		s.changes[resource] = make(chan *bytes.Buffer)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *source) serve(w http.ResponseWriter, r *http.Request) {
	const core, discovery = "/api/v1", "/apis/discovery.k8s.io/v1"
	say := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // who has gone away needs no answer
	}
	list := func(group string, names ...string) {
		l := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group}
		for _, name := range names {
			l.APIResources = append(l.APIResources, resources[name])
		}
		say(l)
	}
	version := metav1.GroupVersionForDiscovery{GroupVersion: discoveryv1.SchemeGroupVersion.String(), Version: "v1"}
	path := strings.Replace(r.URL.Path, "/namespaces/"+ourNamespace, "", 1)
	switch path {
	case "/api":
		say(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "/apis":
		say(metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
			{Name: discoveryv1.GroupName, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
		}})
	case core:
		list("v1", "services", "nodes", "pods", "secrets")
	case discovery:
		list(version.GroupVersion, "endpointslices")
	case core + "/services", core + "/nodes", core + "/pods", core + "/secrets", discovery + "/endpointslices":
		s.tell(w, r, path[strings.LastIndex(path, "/")+1:], say)
	default:
		http.NotFound(w, r)
	}
}

// tell lists objects, or watches them: from the beginning (sendInitialEvents) or from now on.
func (s *source) tell(w http.ResponseWriter, r *http.Request, resource string, say func(any)) {
	now := strconv.FormatInt(s.version.Add(1), 10)
	of := resources[resource]
	version := "v1"
	if resource == "endpointslices" {
		version = discoveryv1.SchemeGroupVersion.String()
	}
	if r.URL.Query().Get("watch") == "" {
		say(map[string]any{
			"kind": of.Kind + "List", "apiVersion": version, "metadata": metav1.ListMeta{ResourceVersion: now}, "items": append([]any{}, s.begun[resource]...),
		})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	flusher := http.NewResponseController(w)
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		events := json.NewEncoder(w)
		for _, object := range s.begun[resource] {
			_ = events.Encode(map[string]any{"type": "ADDED", "object": object})
		}
		_ = events.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"kind": of.Kind, "apiVersion": version, "metadata": metav1.ObjectMeta{
				ResourceVersion: now, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			},
		}})
	}
	_ = flusher.Flush()
	for {
		select {
		case lines := <-s.changes[resource]:
			if _, err := w.Write(lines.Bytes()); err != nil {
				return
			}
			_ = flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// put adds a change of an object to lines.
func (s *source) put(lines *bytes.Buffer, object metav1.Object) error {
	object.SetResourceVersion(strconv.FormatInt(s.version.Add(1), 10))
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	fmt.Fprintf(lines, "{\"type\":\"MODIFIED\",\"object\":%s}\n", text)
	return nil
}

// send hands lines to whoever watches.
func (s *source) send(t *testing.T, resource string, lines *bytes.Buffer) {
	t.Helper()
	select {
	case s.changes[resource] <- lines:
	case <-time.After(patience):
		t.Fatalf("nobody takes what changed of %s", resource)
	}
}

// service is one with a ClusterIP and a port.
func service(name, clusterIP string) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: "1"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// slice lists one endpoint of a Service.
func slice(service, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: discoveryv1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: service + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: service}, ResourceVersion: "1",
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
}
