package reconcile

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/gauge"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// Metrics are the numbers that the leader keeps; those of a stand-by stay empty.
type Metrics struct {
	pools    *gauge.Set
	reserved *gauge.Set
	services *gauge.Set
	bookings *gauge.Set
	problems *gauge.Set
	writes   *prometheus.CounterVec
	ledger   *prometheus.CounterVec
	passes   prometheus.Histogram
}

// NewMetrics makes the metrics and registers them. The error is that of the
// registerer: a name is taken.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		pools: gauge.New("fairlead_pool_addresses",
			"Addresses of a pool by family and state: assigned to a Service or an IPReservation, or available.", "pool", "family", "state"),
		reserved: gauge.New("fairlead_pool_reserved_addresses",
			"Addresses of a pool, by family, that IPReservations hold, with or without a Service on them.", "pool", "family"),
		bookings: gauge.New("fairlead_reservations",
			"IPReservations by whether they hold addresses: allocated or waiting.", "state"),
		services: gauge.New("fairlead_services",
			"Services of type LoadBalancer by whether they have addresses: allocated or waiting.", "state"),
		problems: gauge.New("fairlead_problems",
			"Problems there are now, by the kind of the object and the reason.", "kind", "reason"),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_status_writes_total",
			Help: "Statuses written, by the kind of the object and the result: ok, conflict or error.",
		}, []string{"kind", "result"}),
		ledger: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_ledger_writes_total",
			Help: "Pages written of the ledger of who has the addresses of pools with a cool-down, by the result: ok, conflict or error.",
		}, []string{"result"}),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fairlead_allocation_pass_seconds",
			Help:    "How long it took to decide over the whole cluster once.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
		}),
	}
	return m, errors.Join(to.Register(m.pools), to.Register(m.reserved), to.Register(m.services), to.Register(m.bookings), to.Register(m.problems),
		to.Register(m.writes), to.Register(m.ledger), to.Register(m.passes))
}

func (m *Metrics) wrote(kind string, err error) { m.writes.WithLabelValues(kind, result(err)).Inc() }

func (m *Metrics) recorded(err error) { m.ledger.WithLabelValues(result(err)).Inc() }

func result(err error) string {
	switch {
	case apierrors.IsConflict(err):
		return "conflict"
	case err != nil:
		return "error"
	default:
		return "ok"
	}
}

// passed records the outcome of one pass. Pools and reasons that are gone go.
func (m *Metrics) passed(took time.Duration, d *decision) {
	m.passes.Observe(took.Seconds())

	pools, reserved, problems := gauge.Series{}, gauge.Series{}, gauge.Series{}
	for name, u := range d.outcome.Usage {
		for family, n := range map[string]allocation.Counts{"IPv4": u.IPv4, "IPv6": u.IPv6} {
			pools[gauge.Key(name, family, "assigned")] = float64(n.Assigned)
			pools[gauge.Key(name, family, "available")] = float64(n.Available)
			reserved[gauge.Key(name, family)] = float64(n.Reserved)
		}
	}
	for _, p := range d.problems {
		problems[gauge.Key(p.Object.Kind, p.Reason)]++
	}
	if d.straying > 0 {
		problems[gauge.Key("Service", fromkube.ReasonUnknownAnnotation)] = float64(d.straying)
	}
	m.pools.Replace(pools)
	m.reserved.Replace(reserved)
	m.problems.Replace(problems)
	waiting := 0
	for _, a := range d.outcome.Assigned.Reservations {
		if len(a.Addresses) == 0 {
			waiting++
		}
	}
	tally(m.services, len(d.outcome.Assigned.Services), d.outcome.Waiting)
	tally(m.bookings, len(d.outcome.Assigned.Reservations), waiting)
}

func tally(into *gauge.Set, all, waiting int) {
	into.Replace(gauge.Series{"allocated": float64(all - waiting), "waiting": float64(waiting)})
}

// byObject groups problems; those of one object keep their order.
func byObject(problems []problem.Problem) map[problem.Object][]problem.Problem {
	grouped := map[problem.Object][]problem.Problem{}
	for _, p := range problems {
		grouped[p.Object] = append(grouped[p.Object], p)
	}
	return grouped
}
