package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// laggard stands between a controller and the API server. It holds back what the watch of one resource tells, and fails
// requests for single objects of another.
type laggard struct {
	*httptest.Server
	forward *httputil.ReverseProxy

	mu     sync.Mutex
	late   string        // the resource
	passed chan struct{} // closed once nothing is late
	broken string

	refused chan struct{} // two slots: requests failed
}

func newLaggard(t *testing.T, config *rest.Config) *laggard {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	l := &laggard{refused: make(chan struct{}, 2), forward: &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
	l.Server = httptest.NewServer(l)
	t.Cleanup(func() {
		l.hold("", "")
		l.CloseClientConnections()
		l.Close()
	})
	return l
}

// hold holds the watch of one resource back, and breaks the reading of another; "": of none.
func (l *laggard) hold(late, broken string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late != "" {
		close(l.passed)
	}
	l.late, l.broken, l.passed = late, broken, make(chan struct{})
}

func (l *laggard) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	path, watch := request.URL.Path, request.URL.Query().Get("watch") != ""
	if broken != "" && request.Method == http.MethodGet && strings.Contains(path, "/"+broken+"/") {
		select {
		case l.refused <- struct{}{}:
		default:
		}
		http.Error(w, "broken", http.StatusServiceUnavailable)
		return
	}
	if watch {
		w = lateWriter{w, l, request}
	}
	l.forward.ServeHTTP(w, request)
}

// lateWriter writes what a watch tells once that is not held back.
type lateWriter struct {
	http.ResponseWriter
	*laggard
	request *http.Request
}

func (w lateWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w lateWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	late, passed := w.late, w.passed
	w.mu.Unlock()
	if late != "" && strings.HasSuffix(w.request.URL.Path, "/"+late) {
		select {
		case <-passed:
		case <-w.request.Context().Done():
		}
	}
	return w.ResponseWriter.Write(b)
}

// outdated is what an address is given by and the watch of it, and what is done to it.
type outdated struct {
	name, late string
	before     func(t *testing.T) (change func(t *testing.T))
	make       func(s *corev1.Service)
	want       string // "": the Service may have no address
}

// testOutdated replaces what an address is given by, and makes a Service while the watch does not tell of that.
func testOutdated(t *testing.T, c *cluster) {
	slow := *c
	proxy := newLaggard(t, c.controller)
	slow.controller = &rest.Config{Host: proxy.URL}
	slow.start(t)
	update(t, c, c.pool(t, "other", "203.0.113.0/24"), func(p *v1beta1.IPAddressPool) { p.Spec.AutoAssign = new(false) })
	for _, test := range c.outdated(t) {
		t.Run(test.name, func(t *testing.T) {
			change := test.before(t)
			proxy.hold(test.late, "")
			change(t)
			s := c.service(t, "late", func(s *corev1.Service) {
				if test.make != nil {
					test.make(s)
				}
			})
			c.holds(t, c.service(t, "later", asking(v1beta1.AnnotationPool, "other")), "203.0.113.0") // so the first was seen, too
			until(t, c, s, "there", func(*corev1.Service) bool { return true })
			if got := ips(s); len(got) > 0 {
				t.Errorf("it got %v, which rests on what is no more", got)
			}
			proxy.hold("", "")
			if test.want == "" {
				c.refused(t, s, "NoPool")
			} else {
				c.holds(t, s, test.want)
			}
		})
	}
	t.Run("the API server does not answer", func(t *testing.T) {
		c.known(t, c.pool(t, "lan", "198.51.100.0/28"))
		proxy.hold("", "ipaddresspools")
		s := c.service(t, "late")
		for range 2 {
			select {
			case <-proxy.refused:
			case <-time.After(patience):
				t.Fatal("nothing is read")
			}
		}
		until(t, c, s, "there", func(*corev1.Service) bool { return true })
		if got := ips(s); len(got) > 0 {
			t.Errorf("it got %v, for which nothing speaks", got)
		}
		proxy.hold("", "")
		c.holds(t, s, "198.51.100.0")
	})
}

// known waits until the controller has seen the newest version of a pool.
func (c *cluster) known(t *testing.T, p *v1beta1.IPAddressPool) *v1beta1.IPAddressPool {
	t.Helper()
	until(t, c, p, "known", func(p *v1beta1.IPAddressPool) bool {
		condition := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
		return condition != nil && condition.ObservedGeneration == p.Generation
	})
	return p
}

func (c *cluster) outdated(t *testing.T) []outdated {
	t.Helper()
	const pools = "ipaddresspools"
	lan := func(t *testing.T) *v1beta1.IPAddressPool {
		t.Helper()
		return c.known(t, c.pool(t, "lan", "198.51.100.0/28"))
	}
	replace := func(t *testing.T, object client.Object, with func()) {
		t.Helper()
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		with()
	}
	reserve := func(t *testing.T, address string) *v1beta1.IPReservation {
		t.Helper()
		r := &v1beta1.IPReservation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1beta1.IPReservationSpec{Addresses: []string{address}}}
		c.temporary(t, r)
		return r
	}
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-of-old", Labels: map[string]string{"rent": "paid"}}}
	c.create(t, tenant)
	return []outdated{
		{"a pool is replaced by one of another name", pools, func(t *testing.T) func(*testing.T) {
			p := lan(t)
			return func(t *testing.T) { replace(t, p, func() { c.pool(t, "new", "192.0.2.0/28") }) }
		}, nil, "192.0.2.0"},
		{"a pool is replaced by one of its name", pools, func(t *testing.T) func(*testing.T) {
			p := lan(t)
			return func(t *testing.T) { replace(t, p, func() { c.pool(t, "lan", "192.0.2.0/28") }) }
		}, nil, "192.0.2.0"},
		{"a pool gets other ranges", pools, func(t *testing.T) func(*testing.T) {
			p := lan(t)
			return func(t *testing.T) {
				update(t, c, p, func(p *v1beta1.IPAddressPool) { p.Spec.Addresses = []string{"192.0.2.0/28"} })
			}
		}, nil, "192.0.2.0"},
		{"a pool is closed", pools, func(t *testing.T) func(*testing.T) {
			p := lan(t)
			return func(t *testing.T) { update(t, c, p, func(p *v1beta1.IPAddressPool) { p.Spec.Disabled = true }) }
		}, nil, ""},
		{"a namespace loses the label by which a pool is for it", "namespaces", func(t *testing.T) func(*testing.T) {
			p := lan(t)
			update(t, c, p, func(p *v1beta1.IPAddressPool) {
				p.Spec.ServiceAllocation = &v1beta1.ServiceAllocation{NamespaceSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"rent": "paid"}}}}
			})
			c.known(t, p)
			return func(t *testing.T) { update(t, c, tenant, func(n *corev1.Namespace) { n.Labels["rent"] = "due" }) }
		}, func(s *corev1.Service) { s.Namespace = tenant.Name }, ""},
		{"a reservation is replaced", "ipreservations", func(t *testing.T) func(*testing.T) {
			lan(t)
			r := reserve(t, "198.51.100.5")
			until(t, c, r, "held", func(r *v1beta1.IPReservation) bool { return len(r.Status.Addresses) == 1 })
			return func(t *testing.T) { replace(t, r, func() { reserve(t, "198.51.100.9") }) }
		}, asking(v1beta1.AnnotationReservation, "web"), "198.51.100.9"},
	}
}
