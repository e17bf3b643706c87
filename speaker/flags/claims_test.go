package flags

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/serve/secure"
	"fairlead.dev/fairlead/speaker/desired"
)

func TestExternalIPs(t *testing.T) {
	for text, want := range map[string]struct {
		setting desired.ExternalIPs
		cidrs   []netip.Prefix
	}{
		"All":   {desired.AllExternalIPs, nil},
		"Pools": {desired.PoolExternalIPs, nil},
		"None":  {desired.NoExternalIPs, nil},
		"192.0.2.7/24, 2001:db8::/64": {
			desired.ListedExternalIPs, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		},
	} {
		setting, cidrs, err := parseExternalIPs(text)
		if err != nil || setting != want.setting || !slices.Equal(cidrs, want.cidrs) {
			t.Errorf("%q: %v, %v, %v, want %+v", text, setting, cidrs, err, want)
		}
	}
	for _, text := range []string{"", "all", "192.0.2.1", "Pools,192.0.2.0/24"} {
		if _, _, err := parseExternalIPs(text); err == nil || !strings.Contains(err.Error(), "--external-ips") || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: error %v, want one that names the flag and the value", text, err)
		}
	}
}

// TestHostPorts: all ports at which Fairlead itself is reached on a node are spared, as they are set.
func TestHostPorts(t *testing.T) {
	c := Config{BGPPort: 1179, Metrics: secure.Options{Address: ":9474"}, ProxyHealth: "127.0.0.1:10256", ProxyStatus: "0.0.0.0:10249"}
	got, err := parseHostPorts("7475, 7476", c)
	if want := []uint16{1179, 7475, 7476, 9474, 10256, 10249}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, text := range []string{"", "0", "65536", "7475,x"} {
		if _, err := parseHostPorts(text, c); err == nil || !strings.Contains(err.Error(), "--host-ports") {
			t.Errorf("%q: error %v, want one that names the flag", text, err)
		}
	}
}

// TestResolvers reads what kubelets and systemd-resolved write.
func TestResolvers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	const text = "# nameserver 192.0.2.9\nsearch example.com\nnameserver 10.96.0.3\n nameserver\tfe80::53%eth0\nnameserver none\nnameserver\noptions edns0\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := resolvers(file), []netip.Addr{netip.MustParseAddr("10.96.0.3"), netip.MustParseAddr("fe80::53")}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := resolvers(filepath.Join(t.TempDir(), "none")); got != nil {
		t.Errorf("without a file: %v", got)
	}
}
