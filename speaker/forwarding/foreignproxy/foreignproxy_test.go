package foreignproxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
)

func find(t *testing.T, h *netlab.Host) []string {
	t.Helper()
	var found []string
	var err error
	h.Do(func() { found, err = Find(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func run(t *testing.T, h *netlab.Host, command string) {
	t.Helper()
	var out []byte
	var err error
	words := strings.Fields(command)
	h.Do(func() { out, err = exec.Command(words[0], words[1:]...).CombinedOutput() })
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// TestFind leaves in a kernel what each mode of kube-proxy would, and takes it away.
func TestFind(t *testing.T) {
	for _, test := range []struct{ name, add, remove, want string }{
		{"nft variant", "iptables-nft -t nat -N KUBE-SERVICES", "iptables-nft -t nat -X KUBE-SERVICES", "iptables rules (nft variant, IPv4)"},
		{"nft variant, IPv6", "ip6tables-nft -t nat -N KUBE-SERVICES", "ip6tables-nft -t nat -X KUBE-SERVICES", "iptables rules (nft variant, IPv6)"},
		{"legacy variant", "iptables-legacy -t nat -N KUBE-SERVICES", "iptables-legacy -t nat -X KUBE-SERVICES", "iptables rules (legacy variant, IPv4)"},
		{"nftables", "nft add table ip6 kube-proxy", "nft delete table ip6 kube-proxy", "nftables rules (IPv6)"},
		{"ipvs", "ip link add kube-ipvs0 type bridge", "ip link del kube-ipvs0", "IPVS interface kube-ipvs0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := netlab.NewHost(t, "node")
			run(t, h, "iptables-nft -t nat -N KUBE-MARK-MASQ") // which a kubelet may have made
			if found := find(t, h); len(found) > 0 {
				t.Fatalf("found %v where nothing is", found)
			}
			run(t, h, test.add)
			if found := find(t, h); !slices.Equal(found, []string{test.want}) {
				t.Errorf("found %v, want %s", found, test.want)
			}
			run(t, h, test.remove)
			if found := find(t, h); len(found) > 0 {
				t.Errorf("found %v after it went", found)
			}
		})
	}
}

// TestLegacyTablesThatAreLocked has another program keep the tables to itself: nobody knows then
// whose rules there are.
func TestLegacyTablesThatAreLocked(t *testing.T) {
	h := netlab.NewHost(t, "node")
	run(t, h, "iptables-legacy -t nat -N KUBE-SERVICES")
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XTABLES_LOCKFILE", lock.Name())
	h.Do(func() {
		if found, err := Find(t.Context()); err == nil || len(found) > 0 {
			t.Errorf("found %v, error %v", found, err)
		}
	})
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if found := find(t, h); len(found) != 1 {
		t.Errorf("found %v once nobody keeps them", found)
	}
}

// TestForwards leaves in a kernel what kube-proxy has there while it begins, which is not
// enough, and once it has begun; and of the other family.
func TestForwards(t *testing.T) {
	for _, test := range []struct{ name, begins, begun, other string }{
		{
			"nft variant", "iptables-nft -t nat -N KUBE-SERVICES",
			"iptables-nft -t nat -N KUBE-NODEPORTS", "ip6tables-nft -t nat -N KUBE-NODEPORTS",
		},
		{
			"legacy variant", "iptables-legacy -t nat -N KUBE-SERVICES",
			"iptables-legacy -t nat -N KUBE-NODEPORTS", "ip6tables-legacy -t nat -N KUBE-NODEPORTS",
		},
		{"nftables", "nft add table ip others", "nft add table ip kube-proxy", "nft add table ip6 kube-proxy"},
		{
			"ipvs", "ip link add kube-ipvs0 up type bridge",
			"ip address add 10.96.0.1/32 dev kube-ipvs0", "ip address add fd00:96::1/128 dev kube-ipvs0",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := netlab.NewHost(t, "node")
			for _, step := range []struct {
				command string
				want    map[addr.Family]bool
			}{
				{test.begins, map[addr.Family]bool{addr.IPv4: false, addr.IPv6: false}},
				{test.begun, map[addr.Family]bool{addr.IPv4: true, addr.IPv6: false}},
				{test.other, map[addr.Family]bool{addr.IPv4: true, addr.IPv6: true}},
			} {
				run(t, h, step.command)
				for family, want := range step.want {
					var got bool
					var err error
					h.Do(func() { got, err = Forwards(t.Context(), family) })
					if err != nil || got != want {
						t.Errorf("after %s, %s: forwards: %t, %v, want %t", step.command, family, got, err, want)
					}
				}
			}
		})
	}
}
