package health

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
)

// patience is how long a change may wait for the kernel before the proxy is unwell:
// two sync periods of kube-proxy.
const patience = time.Minute

// proxy knows whether the kernel follows the cluster.
type proxy struct {
	mu       sync.Mutex
	begun    bool // a first pass has: before, nothing is known that could wait
	eligible bool
	// waiting is when the oldest change came that no pass has taken in yet; zero: none.
	waiting time.Time
	// taken is the same of the changes that a pass has taken in and a family not got.
	taken map[addr.Family]time.Time
	// updated is when a family last got everything.
	updated map[addr.Family]time.Time

	healthz, livez *prometheus.CounterVec
	queued         prometheus.Gauge
	synced         *prometheus.GaugeVec
}

func newProxy() *proxy {
	requests := func(path string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Help: "Answers on " + path + " of the proxy's health port, by status."}
	}
	healthz, livez := requests("/healthz"), requests("/livez")
	healthz.Name, livez.Name = "fairlead_proxy_healthz_total", "fairlead_proxy_livez_total"
	return &proxy{
		taken: map[addr.Family]time.Time{}, updated: map[addr.Family]time.Time{},
		healthz: prometheus.NewCounterVec(healthz, []string{"code"}),
		livez:   prometheus.NewCounterVec(livez, []string{"code"}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_forwarding_last_queued_timestamp_seconds",
			Help: "When the cluster last changed in a way that the kernel is to follow.",
		}),
		synced: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_forwarding_last_sync_timestamp_seconds",
			Help: "When the kernel last was as the cluster wants it.",
		}, []string{"ip_family"}),
	}
}

func (p *proxy) metrics() []prometheus.Collector {
	return []prometheus.Collector{p.healthz, p.livez, p.queued, p.synced, p.oldest()}
}

func (p *proxy) oldest() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_forwarding_oldest_change_seconds",
		Help: "Age of the oldest change that is not in the kernel yet, 0 if there is none.",
	}, func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		age := time.Duration(0)
		for _, family := range addr.Families() {
			age = max(age, p.age(family, time.Now()))
		}
		return age.Seconds()
	})
}

func (p *proxy) changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queued.SetToCurrentTime()
	if p.begun && p.waiting.IsZero() {
		p.waiting = time.Now()
	}
}

// begin notes that a pass takes in all changes, and what it knows of this node. Also a
// pass that nothing has led to may find that the kernel is not as it ought to be.
func (p *proxy) begin(eligible bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := p.waiting
	if oldest.IsZero() {
		oldest = time.Now()
	}
	p.begun, p.eligible, p.waiting = true, eligible, time.Time{}
	for _, family := range addr.Families() {
		if _, behind := p.taken[family]; !behind {
			p.taken[family] = oldest
		}
	}
}

// applied notes that a family has got all that the last pass took in.
func (p *proxy) applied(family addr.Family) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, family)
	p.updated[family] = time.Now()
	p.synced.WithLabelValues(family.String()).SetToCurrentTime()
}

// overdue notes that this host forwards nothing of a family: clients must not wait until a change has waited for long.
func (p *proxy) overdue(family addr.Family) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if latest := time.Now().Add(-patience); p.taken[family].After(latest) {
		p.taken[family] = latest
	}
}

// absent notes that this host has not a family at all: nothing of it waits, and nothing is said of
// it. kube-proxy works with the other one alone.
func (p *proxy) absent(family addr.Family) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, family)
	delete(p.updated, family)
}

// age is how long the oldest change has been waiting for a family.
func (p *proxy) age(family addr.Family, now time.Time) time.Duration {
	oldest, waits := p.taken[family]
	if !waits {
		oldest = p.waiting
	}
	if oldest.IsZero() {
		return 0
	}
	return now.Sub(oldest)
}

// proxyHealth is the answer of kube-proxy; the order of the fields is that of its JSON.
type proxyHealth struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyHealth `json:"status,omitempty"`
}

type familyHealth struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// health is what is true now, and whether the node is eligible.
func (p *proxy) health() (h proxyHealth, eligible bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h = proxyHealth{CurrentTime: time.Now(), Healthy: true, Status: map[string]familyHealth{}}
	for _, family := range addr.Families() {
		updated, known := p.updated[family]
		healthy := p.age(family, h.CurrentTime) < patience
		h.Healthy = h.Healthy && healthy
		if known || !healthy {
			h.Status[family.String()] = familyHealth{LastUpdated: updated, Healthy: healthy}
		}
		if updated.After(h.LastUpdated) {
			h.LastUpdated = updated
		}
	}
	return h, p.eligible
}

// handler serves /healthz, which load balancers ask whether to send connections here,
// and /livez, which reports only whether the proxy works.
func (p *proxy) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		h, eligible := p.health()
		h.NodeEligible = &eligible
		respond(w, h, h.Healthy && eligible, p.healthz)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		h, _ := p.health()
		respond(w, h, h.Healthy, p.livez)
	})
	return mux
}

// respond answers 200 if all is well. Then it says that the kernel was updated just now,
// as kube-proxy has done since it wrote all rules all the time.
func respond(w http.ResponseWriter, h proxyHealth, well bool, count *prometheus.CounterVec) {
	code := http.StatusServiceUnavailable
	if well {
		code, h.LastUpdated = http.StatusOK, h.CurrentTime
	}
	count.WithLabelValues(strconv.Itoa(code)).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	body, _ := json.Marshal(h) // plain values always have a JSON form
	_, _ = w.Write(body)
}
