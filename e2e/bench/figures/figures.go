// Package figures collects what a benchmark measures and renders it.
package figures

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Measure is one kind of figure.
type Measure string

// The measures and their units.
const (
	Rate      Measure = "flows a second"
	Whole     Measure = "median flow, µs"
	Connect   Measure = "median connect, µs"
	RateFirst Measure = "flows a second with the least Services, in the same passes"

	Change    Measure = "change of endpoints, ms"
	ChangeCPU Measure = "CPU time a change, ms"

	Fill       Measure = "from start to all Services, s"
	FillSynced Measure = "from synced caches to all Services, s"
	FillCPU    Measure = "CPU time from start to all Services, s"

	Creating  Measure = "creating all Services, s"
	Giving    Measure = "from the first creation to an address for all, s"
	Factor    Measure = "of these the second by the first"
	Single    Measure = "from the event of one Service to that of its address, ms"
	GivingCPU Measure = "CPU time until all have addresses, s"

	FirstOfPool  Measure = "from the creation of a pool to the first address of it, ms"
	PoolResident Measure = "VmRSS with that pool, MiB"
	PoolPeak     Measure = "VmHWM with that pool, MiB"

	Resident  Measure = "VmRSS, MiB"
	Anonymous Measure = "RssAnon, MiB"
	Peak      Measure = "VmHWM, MiB"
)

// key names a series of figures.
type key struct {
	contestant string
	size       int
	measure    Measure
}

// Results are figures by contestant, number of Services and measure.
type Results struct {
	series map[key][]float64
	notes  []string
}

// New makes Results without any.
func New() *Results { return &Results{series: map[key][]float64{}} }

// Add takes in figures.
func (r *Results) Add(contestant string, size int, m Measure, values ...float64) {
	k := key{contestant, size, m}
	r.series[k] = append(r.series[k], values...)
}

// Note takes in what a reader of the figures should know. Each is told once.
func (r *Results) Note(text string) {
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// Count is how many figures there are.
func (r *Results) Count(contestant string, size int, m Measure) int {
	return len(r.series[key{contestant, size, m}])
}

// Has reports whether anything has figures of a measure.
func (r *Results) Has(m Measure) bool {
	for k := range r.series {
		if k.measure == m {
			return true
		}
	}
	return false
}

// Quantile is the least figure that at least the share q of all do not exceed; NaN if
// there are none. The median is Quantile 0.5.
func (r *Results) Quantile(contestant string, size int, m Measure, q float64) float64 {
	return quantile(r.series[key{contestant, size, m}], q)
}

func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// Sizes reads rising numbers of Services, separated by commas. Any other text is an error.
func Sizes(text string) ([]int, error) {
	var sizes []int
	for field := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' }) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number of Services", field)
		}
		sizes = append(sizes, n)
	}
	if !slices.IsSorted(sizes) {
		return nil, errors.New("numbers of Services must rise")
	}
	return sizes, nil
}

// Share is the median of how many times the other figure one is, each pair taken at
// nearly the same time, so that what else the machine does bears on both. The n-th figure
// of one belongs to the n-th of the other. NaN if there are none.
func (r *Results) Share(size int, one string, ofOne Measure, other string, ofOther Measure) float64 {
	dividends, divisors := r.series[key{one, size, ofOne}], r.series[key{other, size, ofOther}]
	var shares []float64
	for i := range min(len(dividends), len(divisors)) {
		shares = append(shares, dividends[i]/divisors[i])
	}
	return quantile(shares, 0.5)
}

// Milliseconds is a time as most figures have it.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Median is Quantile 0.5.
func (r *Results) Median(contestant string, size int, m Measure) float64 {
	return r.Quantile(contestant, size, m, 0.5)
}
