package gauge_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/internal/gauge"
)

// TestReplace: the series are those of the last Replace, and no others.
func TestReplace(t *testing.T) {
	t.Parallel()
	g := gauge.New("addresses", "Addresses of a pool.", "pool", "family")
	if err := testutil.CollectAndCompare(g, strings.NewReader("")); err != nil {
		t.Error("before there are any:", err)
	}
	g.Replace(gauge.Series{gauge.Key("lan", "IPv4"): 1, gauge.Key("gone", "IPv4"): 2})
	g.Replace(gauge.Series{gauge.Key("lan", "IPv4"): 3, gauge.Key("", "IPv6"): 4})
	if err := testutil.CollectAndCompare(g, strings.NewReader(`
# HELP addresses Addresses of a pool.
# TYPE addresses gauge
addresses{family="IPv6",pool=""} 4
addresses{family="IPv4",pool="lan"} 3
`)); err != nil {
		t.Error(err)
	}
}
