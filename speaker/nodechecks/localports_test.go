package nodechecks

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fairlead.dev/fairlead/speaker/links/linkstest"
)

// TestLocalPorts reads which ports the kernel gives to connections of the node: as texts, and as a kernel has them.
func TestLocalPorts(t *testing.T) {
	t.Parallel()
	ports := []uint16{1023, 1024, 30000, 30040, 32767, 32768, 60999, 61000, 65535}
	for _, test := range []struct {
		span, reserved, read string
		given                []uint16 // nil: an error
	}{
		{"32768\t60999\n", "\n", "32768 60999", []uint16{32768, 60999}},
		{"1024\t65535\n", "30000-32767\n", "1024 65535", []uint16{1024, 32768, 60999, 61000, 65535}},
		{"1024\t60999\n", "1024,30040,32768-60000\n", "1024 60999", []uint16{30000, 32767, 60999}},
		{"1024 99999", "", "", nil},
		{"", "", "", nil},
		{"1024 65535", "30000-x", "", nil},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"ip_local_port_range": test.span, "ip_local_reserved_ports": test.reserved} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, dir, ports, test.read, test.given)
	}
	h := linkstest.NewHost(t)
	h.Sysctl("ipv4/ip_local_port_range", "1024 60999")
	h.Sysctl("ipv4/ip_local_reserved_ports", "30040,30042-32767")
	if err := h.Do(func() error {
		expect(t, ipv4Dir, ports, "1024 60999", []uint16{1024, 30000, 32768, 60999})
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func expect(t *testing.T, dir string, ports []uint16, span string, want []uint16) {
	t.Helper()
	given, read, err := localPorts(dir)
	if (err != nil) != (want == nil) || read != span {
		t.Errorf("%q: %q, error %v", span, read, err)
	}
	if given == nil {
		return
	}
	if got := slices.DeleteFunc(slices.Clone(ports), func(p uint16) bool { return !given(p) }); !slices.Equal(got, want) {
		t.Errorf("%q: of %v the kernel gives %v, want %v", span, ports, got, want)
	}
}
