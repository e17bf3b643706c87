package command

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// collector reads the counts of all parts when it is asked, so that the parts
// need no metrics library.
type collector struct {
	mesh     *hello.Mesh
	arp, ndp *neighbour.Responder
	server   *pulse.Server
	sessions *bfd.Sessions
	apart    *linkcheck.Monitor
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
	gossipSent      = describe("gossip_sent_total", "Datagrams sent with what nodes say to all.")
	gossipRepairs   = describe("gossip_repairs_total", "Comparisons of what is known with another node, after gossip was lost.")
	nodesWatched    = describe("nodes_watched", "Other nodes whose silence this one notices itself: all, or about eight of many.")
	nodesHeard      = describe("nodes_heard", "Other nodes that are alive by their own word.")
	nodesApart      = describe("nodes_apart", "Other nodes that this one does not hear and that count as alive because others hear them.")
	nodesUnheard    = describe("nodes_unheard", "Other nodes that were never heard and count as alive because Kubernetes says so.")
	lateness        = describe("hello_lateness_seconds", "By how much hellos of this node left late in the last three minutes, at most.")
	detection       = describe("detection_seconds", "Silence that makes a node dead: this one in the eyes of others, and others, at most, in the eyes of this one.", "of")
	settled         = describe("settled", "1 once the hellos were listened to long enough to own addresses.")
	owned           = describe("owned_addresses", "Addresses that this node answers for.")
	contested       = describe("contested_addresses", "Addresses of this node that a station has which is no node's, answered for all the same or not.", "withheld")
	doubted         = describe("doubted_addresses", "Addresses of other nodes that nobody answers for, or another node than the one that is to, as seen from this one; and those that none can.")
	cutOff          = describe("cut_off", "1 while this node answers for nothing, since it hears no more than half of the nodes and its gateway does not answer.")
	linksCutOff     = describe("links_cut_off", "Interfaces over which no node is heard, though others hear each other there.")
	damped          = describe("nodes_damped", "Nodes that come last among the candidates for a while, since they fell silent again and again.")
	framesSent      = describe("link_hellos_sent_total", "Frames sent to other nodes on interfaces of which the hellos say nothing.")
	framesUnsent    = describe("link_hello_send_errors_total", "Such frames that the kernel did not take.")
	framesReceived  = describe("link_hellos_received_total", "Such frames received.")
	framesRejected  = describe("link_hellos_rejected_total", "Such frames that were not believed.", "reason")
	left            = describe("left_addresses", "Addresses that are this node's by its table and left to another one, which answers for them.")
	unable          = describe("unable_addresses", "Claimed addresses with no interface to answer on.")
)

// responding are the metrics of one responder.
type responding struct{ answers, announcements, probes, malformed, conflicts, unsent, dropped *prometheus.Desc }

var (
	overARP = responding{
		answers:       describe("arp_answers_total", "ARP requests answered."),
		announcements: describe("arp_gratuitous_total", "Gratuitous ARP requests and replies sent."),
		probes:        describe("arp_probes_total", "ARP requests sent to ask whether another station has an address."),
		malformed:     describe("arp_parse_errors_total", "Frames that were not well-formed ARP."),
		conflicts:     describe("arp_conflicts_total", "ARP frames in which another station claimed an address of ours."),
		unsent:        describe("arp_send_errors_total", "ARP frames that the kernel did not take."),
		dropped:       describe("arp_dropped_total", "ARP frames that came and were not read, for there were too many at once."),
	}
	overNDP = responding{
		answers:       describe("ndp_answers_total", "Neighbour solicitations answered."),
		announcements: describe("ndp_unsolicited_total", "Unsolicited neighbour advertisements sent."),
		probes:        describe("ndp_probes_total", "Neighbour solicitations sent to ask whether another station has an address."),
		malformed:     describe("ndp_parse_errors_total", "Frames that were not well-formed neighbour discovery."),
		conflicts:     describe("ndp_conflicts_total", "Neighbour discovery messages in which another station claimed an address of ours."),
		unsent:        describe("ndp_send_errors_total", "Neighbour advertisements that the kernel did not take."),
		dropped:       describe("ndp_dropped_total", "Messages of neighbour discovery that came and were not read, for there were too many at once."),
	}
)

// Describe is of prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// reasons are those for which what comes from other nodes may not be believed.
func reasons() []hello.Reason {
	return []hello.Reason{
		hello.ReasonMagic, hello.ReasonVersion, hello.ReasonMAC, hello.ReasonMalformed,
		hello.ReasonNoKey, hello.ReasonUnknownNode, hello.ReasonReplayed, hello.ReasonUnproven,
	}
}

// sink takes metrics.
type sink chan<- prometheus.Metric

func (s sink) counter(d *prometheus.Desc, n uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (s sink) gauge(d *prometheus.Desc, n int, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}

func (s sink) is(d *prometheus.Desc, so bool, labels ...string) {
	s.gauge(d, map[bool]int{true: 1}[so], labels...)
}

func (s sink) seconds(d *prometheus.Desc, of time.Duration, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, of.Seconds(), labels...)
}

// Collect is of prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	to := sink(out)
	c.collectHellos(to)
	c.collectState(to)
	for of, stats := range map[responding]neighbour.Stats{overARP: c.arp.Stats(), overNDP: c.ndp.Stats()} {
		to.counter(of.answers, stats.Answers)
		to.counter(of.announcements, stats.Announcements)
		to.counter(of.probes, stats.Probes)
		to.counter(of.malformed, stats.ParseErrors)
		to.counter(of.conflicts, stats.Conflicts)
		to.counter(of.unsent, stats.SendErrors)
		to.counter(of.dropped, stats.Dropped)
	}
	c.collectBFD(to)
}

// collectHellos reads the counts of the mesh, and of the frames on interfaces of which it says nothing.
func (c *collector) collectHellos(to sink) {
	h := c.mesh.Stats()
	to.counter(hellosSent, h.Sent)
	to.counter(hellosUnsent, h.SendErrors)
	to.counter(hellosReceived, h.Received)
	to.counter(hellosDuplicate, h.Duplicates)
	to.counter(deaths, h.Deaths)
	to.counter(gossipSent, h.Gossip)
	to.counter(gossipRepairs, h.Repairs)
	to.gauge(nodesWatched, h.Watched)
	to.gauge(nodesHeard, h.Heard)
	to.gauge(nodesUnheard, h.Unheard)
	to.gauge(nodesApart, h.Apart)
	to.seconds(lateness, h.Late)
	to.seconds(detection, h.Asked, "self")
	to.seconds(detection, h.Waits, "others")
	frames := c.apart.Stats()
	to.counter(framesSent, frames.Sent)
	to.counter(framesUnsent, frames.SendErrors)
	to.counter(framesReceived, frames.Received)
	for _, reason := range reasons() {
		to.counter(hellosRejected, h.Rejected[reason], string(reason))
		to.counter(framesRejected, frames.Rejected[reason], string(reason))
	}
}

// collectState counts what the server tells the agent.
func (c *collector) collectState(to sink) {
	s := c.server.State()
	to.is(settled, s.Settled)
	to.gauge(owned, len(s.Owned))
	to.gauge(unable, len(s.Unable))
	to.gauge(doubted, len(s.Doubted))
	to.is(cutOff, len(s.CutOff) > 0)
	to.gauge(left, len(s.Left))
	to.gauge(linksCutOff, len(s.CutLinks))
	to.gauge(damped, len(s.Damped))
	contests := map[bool]int{}
	for _, c := range s.Contested {
		contests[c.Withheld]++
	}
	for _, withheld := range []bool{false, true} {
		to.gauge(contested, contests[withheld], strconv.FormatBool(withheld))
	}
}
