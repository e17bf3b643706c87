package health

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/outcome"
)

// latency measures how long a change of endpoints takes from what caused it, as a pod
// that became ready, to the kernel: the network programming latency of Kubernetes. One
// goroutine at a time may use it.
type latency struct {
	histogram *prometheus.HistogramVec
	underway  map[view.EndpointsOf]time.Time // triggers of what is not in the kernel yet
	measured  map[view.EndpointsOf]time.Time // the last ones that are
}

func newLatency() *latency {
	return &latency{
		histogram: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_forwarding_network_programming_duration_seconds",
			Help: "Time from what caused a change of a Service's endpoints to the kernel having it.",
			// From a few ms, which our own part takes, to 5 minutes, as in kube-proxy.
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 3, 4, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300},
		}, []string{"ip_family"}),
		underway: map[view.EndpointsOf]time.Time{}, measured: map[view.EndpointsOf]time.Time{},
	}
}

// begin takes in the triggers that there is news of.
func (l *latency) begin(triggers map[view.EndpointsOf]time.Time, news news) {
	note := func(of view.EndpointsOf, at time.Time) {
		if at.After(l.measured[of]) {
			l.underway[of] = at
		}
	}
	for service := range news.services {
		for _, family := range addr.Families() {
			of := view.EndpointsOf{Service: service, Family: family}
			note(of, triggers[of])
		}
	}
	if news.all {
		for of, at := range triggers {
			note(of, at)
		}
	}
	if len(l.measured) > 2*len(triggers)+forgetAfter {
		maps.DeleteFunc(l.measured, func(of view.EndpointsOf, _ time.Time) bool { _, recent := triggers[of]; return !recent })
	}
}

// forgetAfter keeps measured from being tidied up all the time.
const forgetAfter = 1000

// applied measures what the kernel has got. What it never gets, of families that the host has not, is
// no change that takes its time.
func (l *latency) applied(missing outcome.Missing, absent map[addr.Family]bool) {
	if len(l.underway) == 0 {
		return
	}
	lacking := map[view.EndpointsOf]bool{}
	for key := range missing {
		lacking[view.EndpointsOf{Service: key.Service, Family: key.Family}] = true
	}
	now := time.Now()
	for of, at := range l.underway {
		switch {
		case absent[of.Family]:
		case lacking[of]:
			continue
		default:
			// The clock of the control plane may be ahead of ours.
			l.histogram.WithLabelValues(of.Family.String()).Observe(max(now.Sub(at), 0).Seconds())
			l.measured[of] = at
		}
		delete(l.underway, of)
	}
}
