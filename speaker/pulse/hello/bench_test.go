package hello

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkQuiet is what a second costs of all nodes of a mesh in which nothing happens.
func BenchmarkQuiet(b *testing.B) {
	for _, nodes := range []int{3, 10, 50} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			w := settled(nodes, 1)
			for b.Loop() {
				w.run(time.Second)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(nodes), "µs/node")
		})
	}
}
