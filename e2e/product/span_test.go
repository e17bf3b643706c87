package product_test

import (
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/product"
)

func TestMoments(t *testing.T) {
	for name, test := range map[string]struct {
		open [][2]int64
		want int
	}{
		"none":            {},
		"one":             {open: [][2]int64{{1, 2}}, want: 1},
		"at one moment":   {open: [][2]int64{{1, 9}, {3, 4}, {2, 5}, {4, 8}}, want: 1},
		"one after other": {open: [][2]int64{{5, 6}, {1, 2}, {3, 4}}, want: 3},
		"a chain":         {open: [][2]int64{{1, 3}, {2, 5}, {4, 7}, {6, 8}}, want: 2},
		"a long one":      {open: [][2]int64{{0, 100}, {1, 2}, {50, 51}}, want: 2},
	} {
		var open []product.Span
		for _, s := range test.open {
			open = append(open, product.Span{From: time.UnixMilli(s[0]), To: time.UnixMilli(s[1])})
		}
		if got := product.Moments(open); got != test.want {
			t.Errorf("%s: %d moments, want %d", name, got, test.want)
		}
	}
}
