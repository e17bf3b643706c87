package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// lanMTU is that of the LAN, and narrowMTU that of the link to the host behind the client.
const (
	lanMTU    = 1500
	narrowMTU = 1300
)

// Large packets pass through an address, in both modes, families and policies, whatever they meet on the way: a link
// behind the client that is too narrow for what the pod sends, of which the client tells it by ICMP at the address; and a pod
// network that is too narrow for what the client sends, of which a node tells it. Datagrams that come in fragments arrive in whole.
func TestLargePacketsPass(t *testing.T) {
	c := cluster(t)
	behind := hostBehind(t, c)
	for _, mode := range []string{"nftables", "iptables"} { // the scenarios after this one have the latter
		if err := c.Install(within(t, 5*time.Minute), 3, "forwarding.mode="+mode); err != nil {
			t.Fatal(err)
		}
		for _, policy := range []corev1.ServiceExternalTrafficPolicy{local, everyone} {
			s := product.WebService(webs, "large-"+strings.ToLower(mode+"-"+string(policy)), "layer2", policy, c.IPFamilies()...)
			vips := expose(t, c, s)
			for _, vip := range vips {
				t.Run(fmt.Sprintf("%s %s %v", mode, policy, vip.Is4()), func(t *testing.T) {
					reply(t, c.Client, vip)
					forgetPaths(t, c)
					told := tooBig(t, c, vip)
					for range 6 { // each may come to another pod
						echoed(t, c, vip, behind)
						echoed(t, c, vip, nil)
					}
					if lines := told.Stop(); len(lines) == 0 {
						t.Errorf("the client has told %s of no packet that was too big for the link behind it", vip)
					}
					for range 6 {
						datagram(t, c, vip)
					}
				})
			}
		}
	}
}

// hostBehind makes a host to which the client forwards by a narrow link, and returns the words before a command
// that runs there. It asks for segments that are too large for the link, as if it did not know.
func hostBehind(t *testing.T, c *product.Cluster) []string {
	t.Helper()
	const name = "fairlead-lab-behind"
	run := func(ctx context.Context, commands string) {
		if out, err := c.Client.Exec(ctx, "sh", "-ec", commands); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Cleanup(func() {
		run(context.Background(), `ip netns delete `+name+` || :; ip neigh del proxy fd00:31::101 dev eth0 || :
			sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.eth0.proxy_arp=0 net.ipv6.conf.eth0.proxy_ndp=0 net.ipv6.conf.all.forwarding=0`)
	})
	run(t.Context(), fmt.Sprintf(`ip netns add %[1]s
		ip link add behind mtu %[2]d type veth peer name eth0 mtu %[2]d netns %[1]s
		sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.eth0.proxy_arp=1 net.ipv6.conf.eth0.proxy_ndp=1 net.ipv6.conf.all.forwarding=1
		ip address add fe80::1/64 dev behind nodad
		ip link set behind up
		ip route add 172.31.0.101 dev behind
		ip route add fd00:31::101 dev behind
		ip neigh add proxy fd00:31::101 dev eth0
		ip -n %[1]s address add 172.31.0.101/24 dev eth0
		ip -n %[1]s address add fd00:31::101/128 dev eth0 nodad
		ip -n %[1]s link set eth0 up
		ip -n %[1]s route add default via 172.31.0.100 mtu %[2]d advmss 1460
		ip -n %[1]s route add default via fe80::1 dev eth0 mtu %[2]d advmss 1440`, name, narrowMTU))
	return []string{"ip", "netns", "exec", name}
}

// forgetPaths has pods forget how large packets may be on their way to others, which they know from the case before.
func forgetPaths(t *testing.T, c *product.Cluster) {
	t.Helper()
	for _, n := range c.Nodes() {
		if out, err := n.Exec(within(t, soon), "sh", "-ec", "ip -all netns exec ip route flush cache; ip -all netns exec ip -6 route flush cache"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// tooBig records what the client tells an address of packets that are too big.
func tooBig(t *testing.T, c *product.Cluster, vip netip.Addr) *lab.Capture {
	t.Helper()
	filter := "icmp[icmptype] == 3 and icmp[icmpcode] == 4"
	if vip.Is6() {
		filter = "icmp6 and ip6[40] == 2"
	}
	told, err := c.Client.Capture(t.Context(), filter+" and dst host "+vip.String())
	if err != nil {
		t.Fatal(err)
	}
	return told
}

// echoed has a pod receive many full segments, and send as many back.
func echoed(t *testing.T, c *product.Cluster, vip netip.Addr, at []string) {
	t.Helper()
	const size = 60_000
	out, err := c.Client.Exec(within(t, soon), append(at, "sh", "-c", fmt.Sprintf(
		"head -c %d /dev/zero | tr '\\0' x | curl -sS -m 10 --data-urlencode msg@- http://%s/echo | wc -c", size, netip.AddrPortFrom(vip, 80)))...)
	if err != nil || strings.TrimSpace(out) != fmt.Sprint(size) {
		t.Errorf("%s: of %d bytes %s came back: %v", vip, size, strings.TrimSpace(out), err)
	}
}

// datagram sends a datagram in fragments, and one as large as the path has room for, which the kernel learns.
func datagram(t *testing.T, c *product.Cluster, vip netip.Addr) {
	t.Helper()
	if out, err := c.Client.Exec(t.Context(), "ip", "route", "flush", "cache"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	conn, err := c.Client.Dial(t.Context(), "udp", netip.AddrPortFrom(vip, 81).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, soon, func(context.Context) error { return echoedUDP(conn, 2000) })
	headers, level, discover, mtuOption := 20+8, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_MTU
	if vip.Is6() {
		headers, level, discover, mtuOption = 40+8, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_MTU
	}
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	mtu := 0
	eventually(t, soon, func(context.Context) (failed error) {
		err := raw.Control(func(fd uintptr) {
			if failed = unix.SetsockoptInt(int(fd), level, discover, unix.IP_PMTUDISC_DO); failed == nil {
				mtu, failed = unix.GetsockoptInt(int(fd), level, mtuOption)
			}
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		return echoedUDP(conn, mtu-headers)
	})
	if narrow := c.PodNetwork() == lab.Flannel; narrow != (mtu < lanMTU) {
		t.Errorf("%s: the client takes the path for one of %d bytes", vip, mtu)
	}
}

// echoedUDP sends a datagram of that size to the web server and waits for what it returns.
func echoedUDP(conn net.Conn, size int) error {
	const command = "echo "
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(command + strings.Repeat("x", size-len(command)))); err != nil {
		return err
	}
	got := make([]byte, size)
	n, err := conn.Read(got)
	if err == nil && n != size-len(command) {
		err = fmt.Errorf("of %d bytes %d came back", size-len(command), n)
	}
	return err
}
