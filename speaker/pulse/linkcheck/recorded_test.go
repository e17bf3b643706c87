package linkcheck

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// TestRecordedFrameOf010 is read as nodes of that release meant it: there are such nodes while a cluster is updated.
func TestRecordedFrameOf010(t *testing.T) {
	mesh, err := hello.New(hello.Config{Node: "node-b", Port: 1, Interval: 50 * time.Millisecond, Multiplier: 3})
	if err != nil {
		t.Fatal(err)
	}
	mesh.Set(hello.Wanted{Key: []byte("0123456789abcdef0123456789abcdef")})
	want := ccm{
		Node: "node-a", From: hello.IDOf("eth0"), Boot: 0xf0e0d0c0b0a09080, Number: 1 << 33,
		Heard: map[hello.ID]uint32{hello.IDOf("node-b"): 5, hello.IDOf("node-c"): 1 << 31},
	}
	text, err := os.ReadFile("testdata/0.1.0/ccm.hex")
	payload, _ := hex.DecodeString(strings.TrimSpace(string(text)))
	datagram, ok := disclose(payload)
	if err != nil || !ok {
		t.Fatalf("error %v, disclosed %t; made now:\n%x", err, ok, enclose(mesh.Seal(want.encode())[0]))
	}
	body, sealed := mesh.Unseal(datagram)
	got, reason := decode(body)
	if diff := cmp.Diff(want, got); diff != "" || sealed != "" || reason != "" {
		t.Errorf("rejected for %q and %q; sent and read differ:\n%s", sealed, reason, diff)
	}
}
