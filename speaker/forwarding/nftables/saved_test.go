package nftables

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/reusedports"
	"fairlead.dev/fairlead/speaker/pulse/handover"
	"fairlead.dev/fairlead/speaker/pulse/untracked"
)

// everything is a wanted state that fills all sets but those of links. Session affinity is IPv4's alone: nft 1.0.6 aborts where
// it reads rules that it shows of IPv6 addresses in maps which packets change.
func everything() desired.Forwarding {
	services := blackbox.Services()
	for i, s := range services {
		services[i].Fill = func(a blackbox.Addresses, p *desired.Port) {
			if s.Fill(a, p); i%2 == 1 && a.Family == addr.IPv4 {
				p.Affinity = time.Minute
			}
		}
	}
	services = append(services, blackbox.Service{Name: "links", N: 11, Fill: func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Local, p.ExternalLocal = blackbox.At(blackbox.ServePort, a.P1, a.P3), blackbox.At(blackbox.ServePort, a.P1), true
		p.PodLinks = desired.Links{Name: "veth@0.1+", Prefix: true}
	}}, blackbox.Service{Name: "any", N: 12, Fill: func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Restricted = blackbox.At(blackbox.ServePort, a.P1), true
		for bits := range mostLengths + 1 {
			p.SourceRanges = append(p.SourceRanges, netip.PrefixFrom(blackbox.Nth(a.Nobody, 1<<bits), a.Family.Bits()-bits).Masked())
		}
	}})
	want := blackbox.Forwarding(services...)
	want.Guard = true
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		want.ServiceRanges, want.Refused = append(want.ServiceRanges, a.ClusterIPs), append(want.Refused, a.VIPs)
		want.Echo, want.Sources = append(want.Echo, a.Node), append(want.Sources, desired.Source{To: a.Pods, From: a.Node})
	}
	return want
}

// others are the tables of nf_tables that speaker and pulse make beside those of this backend.
func (c *cluster) others() {
	c.t.Helper()
	c.Node.Do(func() {
		if _, err := reusedports.New(nil, testlog.New(c.t)).Find(); err != nil {
			c.t.Error(err)
		}
		untracked.New(7475, testlog.New(c.t)).Apply()
		if err := handover.NewTable().Apply(map[netip.Addr]netip.Addr{
			netip.MustParseAddr("198.51.100.1"): netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8:51::1"): netip.MustParseAddr("2001:db8::7"),
		}); err != nil {
			c.t.Error(err)
		}
	})
}

// TestASavedRulesetLoads has a host save all of its rules while a speaker runs, and load them when it boots: its firewall
// is there. What was saved of ours is replaced, also where it stays, as by a newer nft.
func TestASavedRulesetLoads(t *testing.T) {
	c := newCluster(t)
	c.Run("nft", "add table inet firewall; add chain inet firewall input { type filter hook input priority 0; }; add rule inet firewall input tcp dport 7 drop")
	c.others()
	want := everything()
	c.Apply(want)
	end := c.watch()
	c.Apply(want)
	saved := filepath.Join(t.TempDir(), "saved")
	c.Run("sh", "-c", "nft list ruleset >"+saved)
	end()
	text, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "table ip"); n != 8 {
		t.Fatalf("%d tables are saved, want two of each kind:\n%s", n, text)
	}
	boot := func() {
		t.Helper()
		c.Run("sh", "-c", "nft flush ruleset; nft -f "+saved)
		if got := c.Run("nft", "list", "table", "inet", "firewall"); !strings.Contains(got, "tcp dport 7 drop") {
			t.Errorf("the host's firewall is\n%s", got)
		}
	}
	boot()
	for _, flags := range []string{"owner", "persist", "owner,persist"} { // by whichever version
		text = []byte(strings.ReplaceAll(string(text), "\tflags "+flags+"\n", ""))
	}
	if err := os.WriteFile(saved, text, 0o600); err != nil {
		t.Fatal(err)
	}
	boot()
	if got := c.Run("nft", "list", "tables"); !strings.Contains(got, "table ip6 "+tableName+"\n") {
		t.Fatalf("what was saved of ours is not loaded: %s", got)
	}
	boot() // over what is there
	now := blackbox.Forwarding(blackbox.Services()...)
	c.Restart()
	c.Apply(now)
	got := c.state()
	c.Run("nft", "flush", "ruleset")
	c.Restart()
	if c.Apply(now); c.state() != got {
		t.Errorf("what was loaded becomes\n%s\nwant\n%s", got, c.state())
	}
}

// TestAStaleRulesetThatIsLoadedIsReplaced has others load what they saved before the endpoints changed, while a speaker runs on a
// kernel that cannot keep them from it. Within a second packets go where they must, and it is told.
func TestAStaleRulesetThatIsLoadedIsReplaced(t *testing.T) {
	c := newClusterOf(t, old)
	serve := func(pod func(a blackbox.Addresses) netip.Addr) desired.Forwarding {
		return blackbox.Forwarding(blackbox.Service{Name: "web", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, pod(a)), true
		}})
	}
	before := serve(func(a blackbox.Addresses) netip.Addr { return a.P1 })
	now := serve(func(a blackbox.Addresses) netip.Addr { return a.P2 })
	c.Apply(before)
	saved := filepath.Join(t.TempDir(), "saved")
	c.Run("sh", "-c", "(echo flush ruleset; nft list ruleset | grep -v 'flags $') >"+saved)
	c.Apply(now)
	_, repairs := c.backend.Tally(addr.IPv4)
	ctx, told := t.Context(), make(chan struct{}, 1)
	go c.Node.Do(func() {
		c.backend.Watch(ctx, func() {
			select {
			case told <- struct{}{}:
			default:
			}
		})
	})
	for _, f := range addr.Families() {
		least := time.Hour
		for range 5 { // the machine does other things, too
			c.Run("nft", "-f", saved)
			began := time.Now()
			<-told
			c.Apply(now)
			least = min(least, time.Since(began))
			vip := netip.AddrPortFrom(now.Ports[blackbox.Key("web", "TCP", f)].VIPs[0], 80)
			if got, err := c.Client.Ask("tcp", vip, netlab.Patience(blackbox.AnswerIn)); err != nil || got.Server != "p2" {
				t.Fatalf("%s: %v answers, %v", vip, got, err)
			}
			if least < time.Second {
				break
			}
		}
		if least > time.Second {
			t.Errorf("%s: replaced after %s", f, least)
		}
	}
	if _, after := c.backend.Tally(addr.IPv4); after == repairs {
		t.Error("nothing is counted as changed by others")
	}
}
