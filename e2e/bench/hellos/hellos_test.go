package hellos_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/bench/hellos"
	"fairlead.dev/fairlead/e2e/bench/process"
)

// TestMeasure: three nodes say hello at least twenty times a second to each of the others,
// and all that one sends another one gets.
func TestMeasure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	speaker := filepath.Join(t.TempDir(), "speaker")
	if err := process.Build(t.Context(), "fairlead.dev/fairlead/speaker", speaker); err != nil {
		t.Fatal(err)
	}
	cost, err := hellos.Measure(t.Context(), speaker, 3, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", cost)
	// A busy machine keeps some back; without hellos there would be none.
	if cost.Sent < 10 || cost.Received < 10 || cost.Sent > 400 {
		t.Errorf("%+v: want some 40 packets a second each way", cost)
	}
	if cost.CPU <= 0 || cost.CPU > 100 {
		t.Errorf("%+v: want a little of a processor", cost)
	}
}
