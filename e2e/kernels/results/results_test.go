package results

import (
	"errors"
	"strings"
	"testing"
)

// TestTables has two backends on a kernel where one fails and the other is skipped, and on one that ended early.
func TestTables(t *testing.T) {
	const output = "=== RUN   TestAll\r\n--- FAIL: TestAll (1.00s)\r\n    --- PASS: TestAll/legacy (0.50s)\r\n" +
		"    --- FAIL: TestAll/new (0.50s)\r\n        --- FAIL: TestAll/new/IPv6 (0.10s)\r\n" +
		"--- PASS: TestEach (1.00s)\r\n    --- PASS: TestEach/legacy (0.50s)\r\n    --- SKIP: TestEach/new (0.00s)\r\n" +
		"--- PASS: TestAlone (0.00s)\r\n    --- PASS: TestAlone/part (0.00s)\r\n=== EXIT 1\r\n"
	runs := []Run{
		{Release: "old", Version: "5.10.1", Processor: "max", Output: output, Err: errors.New("status 1"), Settings: map[string]string{"NFT_DUP": "m", "VRF": "y"}},
		{Release: "old", Version: "5.10.1", Processor: "max,-avx2", Err: errors.New("it burns")},
		{Release: "new", Version: "6.1.1", Processor: "max", Output: "    --- PASS: TestAll/new (0.50s)\n"},
	}
	var out strings.Builder
	if err := Write(&out, runs, []string{"legacy", "new"}, []Feature{{"NFT_DUP", "handing over"}, {"VRF", "VRFs"}}); err != nil {
		t.Fatal(err)
	}
	const want = "| Kernel | `-cpu` | legacy | new | other tests | skipped |\n" +
		"| --- | --- | --- | --- | --- | --- |\n" +
		"| 5.10.1 (old) | `max` | 2 passed | **1 failed**, 0 passed | 1 passed | 1 |\n" +
		"| 5.10.1 (old) | `max,-avx2` | –, and then ended | – | – | 0 |\n" +
		"| 6.1.1 (new) | `max` | – | 1 passed | – | 0 |\n\n" +
		"| Setting | For | 5.10.1 | 6.1.1 |\n| --- | --- | --- | --- |\n" +
		"| `CONFIG_NFT_DUP` | handing over | a module | no |\n| `CONFIG_VRF` | VRFs | built in | no |\n"
	if out.String() != want {
		t.Errorf("the tables are\n%s\nwant\n%s", out.String(), want)
	}
}
