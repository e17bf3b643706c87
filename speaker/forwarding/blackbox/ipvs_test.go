package blackbox_test

import (
	"encoding/binary"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// besideIPVS has IPVS balance an address of the node that no Service has, as keepalived does, with connections in the table of
// netfilter, too, as kube-proxy has it do: both are served.
func (c *cluster) besideIPVS(t *testing.T) {
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		theirs := netip.AddrPortFrom(a.Aside, 80)
		c.Node.Do(func() {
			if err := addIPVS(theirs, netip.AddrPortFrom(a.P2, blackbox.ServePort)); err != nil {
				t.Errorf("add to IPVS: %v", err)
			}
			c.Node.Sysctl("net/ipv4/vs/conntrack", "1")
		})
		for to, server := range map[netip.AddrPort]string{theirs: "p2", netip.AddrPortFrom(blackbox.Nth(a.VIPs, 2), 80): "p1"} {
			got, err := ask(c.senders(f)[0], view.TCP, to, answerIn)
			if err != nil || got.Server != server || got.Seen != a.Client.String() {
				t.Errorf("%s: %+v, %v, want an answer of %s", to, got, err, server)
			}
		}
	}
}

// hasIPVS reports whether the kernel has it; no alias names its module.
func hasIPVS(t *testing.T) bool {
	_ = exec.CommandContext(t.Context(), "modprobe", "-q", "ip_vs").Run() // where it is built in, there is no module
	_, err := netlink.GenlFamilyGet("IPVS")
	return err == nil
}

// addIPVS is ipvsadm -A and -a -m, by the attributes of linux/ip_vs.h.
func addIPVS(at, to netip.AddrPort) error {
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return err
	}
	const nested = unix.NLA_F_NESTED
	number := uint16(unix.AF_INET)
	mask := uint32(0xffffffff)
	if at.Addr().Is6() {
		number, mask = unix.AF_INET6, 128
	}
	attributes := func(a netip.AddrPort, address, port int, in *nl.RtAttr) {
		in.AddRtAttr(address, append(a.Addr().AsSlice(), make([]byte, 16-a.Addr().BitLen()/8)...))
		in.AddRtAttr(port, binary.BigEndian.AppendUint16(nil, a.Port()))
	}
	service := nl.NewRtAttr(1|nested, nil)
	service.AddRtAttr(1, nl.Uint16Attr(number))
	service.AddRtAttr(2, nl.Uint16Attr(unix.IPPROTO_TCP))
	attributes(at, 3, 4, service)
	service.AddRtAttr(6, nl.ZeroTerminated("rr"))
	service.AddRtAttr(7, make([]byte, 8))
	service.AddRtAttr(8, nl.Uint32Attr(0))
	service.AddRtAttr(9, nl.Uint32Attr(mask))
	server := nl.NewRtAttr(2|nested, nil)
	attributes(to, 1, 2, server)
	for attribute, value := range map[int]uint32{3: 0, 4: 1, 5: 0, 6: 0} { // masquerading, the weight, and no thresholds
		server.AddRtAttr(attribute, nl.Uint32Attr(value))
	}
	server.AddRtAttr(11, nl.Uint16Attr(number))
	const newService, newServer = 1, 5
	if err := request(family.ID, newService, service); err != nil {
		return err
	}
	return request(family.ID, newServer, service, server)
}

func request(family uint16, command uint8, data ...nl.NetlinkRequestData) error {
	r := nl.NewNetlinkRequest(int(family), unix.NLM_F_ACK)
	r.AddData(&nl.Genlmsg{Command: command, Version: 1})
	for _, d := range data {
		r.AddData(d)
	}
	_, err := r.Execute(unix.NETLINK_GENERIC, 0)
	return err
}
