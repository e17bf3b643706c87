package netlab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// failed is a test that has failed.
type failed struct {
	*testing.T
	dir string
}

func (failed) Failed() bool          { return true }
func (f failed) ArtifactDir() string { return f.dir }

func TestAFailedTestKeepsTheStateOfItsHosts(t *testing.T) {
	dir := t.TempDir()
	t.Run("failed", func(t *testing.T) {
		NewHost(failed{t, dir}, "alone").Addr("lo", "192.0.2.77/32")
	})
	files, err := filepath.Glob(filepath.Join(dir, "alone-*.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	state, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(state), "192.0.2.77") || !strings.Contains(string(state), "# nft list ruleset") {
		t.Errorf("%s, %v", state, err)
	}
}
