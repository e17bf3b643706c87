package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/fairlead/e2e/marked"
)

// TestCounts counts the parts of tests, and the tests that have none.
func TestCounts(t *testing.T) {
	for said, want := range map[string]string{
		"--- PASS: TestA (1.00s)\n    --- PASS: TestA/one (0.5s)\n    --- PASS: TestA/two (0.5s)\n--- PASS: TestAB (0.1s)\n": "3 passed",
		"--- FAIL: TestA (1.00s)\n    --- PASS: TestA/one (0.5s)\n    --- FAIL: TestA/two (0.5s)\n":                          "**1 failed**, 0 skipped, 1 passed",
		"--- SKIP: TestA (0.00s)\n":        "**0 failed**, 1 skipped, 0 passed",
		"the lab is not built\nFAIL\tx 1s": "**0 failed**, 0 skipped, 0 passed",
	} {
		if got := count(said); got != want {
			t.Errorf("%q is %q, want %q", said, got, want)
		}
	}
}

// TestKeep writes a table between the marks of a page, and nothing into a page without them.
func TestKeep(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("a\n<!-- make test-pod-networks writes from here -->\nold\n<!-- to here -->\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := marked.Write(page, target, table([][]string{{"flannel", "1 passed", "–"}})); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "here -->\n| Pod network | scenarios |") || !strings.Contains(string(text), "| flannel | 1 passed | – |\n<!-- to here -->\nb\n") || strings.Contains(string(text), "old") {
		t.Errorf("the page is %s, %v", text, err)
	}
	if err := os.WriteFile(page, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := marked.Write(page, target, ""); err == nil {
		t.Error("a page without marks is written to")
	}
}
