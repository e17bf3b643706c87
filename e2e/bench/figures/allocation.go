package figures

import "strings"

// Pool is a column of the pools' tables.
type Pool struct {
	Name string
	Bits int // of an address that are free, by which its figures are kept
}

// Allocation renders what was measured of controllers in Markdown.
func (r *Results) Allocation(s Setup, pools []Pool) string {
	p := page{Results: r, Setup: s, out: new(strings.Builder)}
	p.head("Allocation")
	p.chapter("In bulk", `Services of type LoadBalancer are created by 16 clients at a time, through a real API server on etcd, while the
controller is at work. All three share the machine. A Service has its address when a watch shows it in the status.`)
	p.table("s to create them all", p.median(Creating))
	p.table("s until all have addresses", p.median(Giving))
	p.table("the second ÷ the first (aim of ours: at most 1.2)", p.median(Factor))
	p.table("CPU time of the controller, s", p.median(GivingCPU))
	for _, other := range p.Contestants {
		if !other.Ours {
			p.table("time until all have addresses: "+other.Name+" ÷ ours", p.against(Giving))
		}
	}
	p.chapter("One among many", `One Service after another is created beside all these. The time runs from the event of its creation to the event that
shows its address, both on a watch of the benchmark's own. Aim of ours: 50 ms for 99 of 100.`)
	p.table("ms: median / 99th percentile (Services)", p.upTo(Single, 0.99))
	p.chapter("Memory", "After all of these, MiB. Aim of ours: less than 120 with 10,000 Services.")
	p.table("VmRSS", p.median(Resident))
	p.table("of that RssAnon", p.median(Anonymous))
	p.table("VmHWM, the most that VmRSS ever was", p.median(Peak))
	p.pools(pools)
	return p.out.String()
}

// pools renders what large pools cost.
func (p page) pools(pools []Pool) {
	p.chapter("Large pools", `A controller without any Service gets one pool, and then a Service. The time runs from the creation of the pool to the
event that shows the Service's address; so a part of it is for two writes. Aim of ours: no cost.`)
	p.Sizes, p.names = nil, map[int]string{}
	for _, pool := range pools {
		p.Sizes = append(p.Sizes, pool.Bits)
		p.names[pool.Bits] = pool.Name
	}
	p.table("ms to the first address", p.median(FirstOfPool))
	p.table("VmRSS, MiB", p.median(PoolResident))
	p.table("VmHWM, MiB", p.median(PoolPeak))
}
