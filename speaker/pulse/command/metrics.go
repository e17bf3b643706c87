package command

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/pulse/arp"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// collector reads the counts of all parts when it is asked, so that the parts
// need no metrics library.
type collector struct {
	mesh      *hello.Mesh
	responder *arp.Responder
	server    *pulse.Server
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("fairlead", "pulse", name), help, labels, nil)
}

var (
	hellosSent      = describe("hellos_sent_total", "Hellos sent to other nodes.")
	hellosUnsent    = describe("hello_send_errors_total", "Hellos that the kernel did not take.")
	hellosReceived  = describe("hellos_received_total", "Datagrams received on the hello port.")
	hellosDuplicate = describe("hellos_duplicate_total", "Hellos that came a second time, by another family or under another key.")
	hellosRejected  = describe("hellos_rejected_total", "Datagrams on the hello port that were not believed.", "reason")
	deaths          = describe("node_deaths_total", "Nodes that fell silent without a goodbye.")
	nodesHeard      = describe("nodes_heard", "Other nodes that are alive by their own word.")
	nodesUnheard    = describe("nodes_unheard", "Other nodes that were never heard and count as alive because Kubernetes says so.")
	settled         = describe("settled", "1 once the hellos were listened to long enough to own addresses.")
	owned           = describe("owned_addresses", "Addresses that this node answers for.")
	unable          = describe("unable_addresses", "Claimed IPv4 addresses with no interface to answer on.")
	arpAnswers      = describe("arp_answers_total", "ARP requests answered.")
	arpGratuitous   = describe("arp_gratuitous_total", "Gratuitous ARP requests and replies sent.")
	arpMalformed    = describe("arp_parse_errors_total", "Frames that were not well-formed ARP.")
	arpConflicts    = describe("arp_conflicts_total", "ARP requests in which another station claimed an address of ours.")
	arpUnsent       = describe("arp_send_errors_total", "ARP frames that the kernel did not take.")
)

// Describe is of prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect is of prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	h := c.mesh.Stats()
	counter(hellosSent, h.Sent)
	counter(hellosUnsent, h.SendErrors)
	counter(hellosReceived, h.Received)
	counter(hellosDuplicate, h.Duplicates)
	for _, reason := range []hello.Reason{
		hello.ReasonMagic, hello.ReasonVersion, hello.ReasonMAC, hello.ReasonMalformed,
		hello.ReasonNoKey, hello.ReasonUnknownNode, hello.ReasonReplayed, hello.ReasonUnproven,
	} {
		counter(hellosRejected, h.Rejected[reason], string(reason))
	}
	counter(deaths, h.Deaths)
	gauge(nodesHeard, h.Heard)
	gauge(nodesUnheard, h.Unheard)

	s := c.server.State()
	gauge(settled, map[bool]int{true: 1}[s.Settled])
	gauge(owned, len(s.Owned))
	gauge(unable, len(s.Unable))

	a := c.responder.Stats()
	counter(arpAnswers, a.Answers)
	counter(arpGratuitous, a.Gratuitous)
	counter(arpMalformed, a.ParseErrors)
	counter(arpConflicts, a.Conflicts)
	counter(arpUnsent, a.SendErrors)
}
