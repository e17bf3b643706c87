package pages

import (
	"context"
	_ "embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

//go:embed testdata/visit.html
var visit []byte

// seen is what the browser says of the site.
type seen struct {
	Pages []struct {
		URL    string
		Width  int // that the page takes of a phone's 360
		Images int // that have not been shown
		Lines  int // of text, at least
	}
	Hits  []string // where the search for "failover bfd" leads
	Error string
}

// TestTheSiteInABrowser opens each page in Debian's Chromium as wide as a phone is: none scrolls sideways, each shows
// its text and its pictures, and the search finds. In short it opens none: TestNoLinkIsDead reads them all.
func TestTheSiteInABrowser(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("%v: e2e/lab/install-packages chromium fonts-dejavu-core", err)
	}
	out := built(t)
	var names []string
	err = filepath.WalkDir(out, func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".html" {
			names = append(names, name[len(out)+1:])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan seen, 1)
	site := http.NewServeMux()
	site.Handle("/", http.FileServer(http.Dir(out)))
	site.HandleFunc("GET /visit", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(visit) })
	site.HandleFunc("GET /names", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(names) })
	site.HandleFunc("POST /told", func(_ http.ResponseWriter, r *http.Request) {
		var s seen
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			s.Error = err.Error()
		}
		told <- s
	})
	server := httptest.NewServer(site)
	defer server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--window-size=1000,800", "--remote-debugging-port=0", server.URL+"/visit")
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the browser is many processes, which write files to their end
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = run.Wait() }()
	select {
	case s := <-told:
		judge(t, s, len(names))
	case <-ctx.Done():
		t.Fatal("the browser said nothing for three minutes")
	}
}

func judge(t *testing.T, s seen, pages int) {
	t.Helper()
	if s.Error != "" {
		t.Fatal(s.Error)
	}
	if len(s.Pages) != pages {
		t.Errorf("the browser opened %d of %d pages", len(s.Pages), pages)
	}
	for _, p := range s.Pages {
		if p.Width > 360 {
			t.Errorf("%s is %d wide on a phone of 360", p.URL, p.Width)
		}
		if p.Images > 0 {
			t.Errorf("%s does not show %d of its pictures", p.URL, p.Images)
		}
		if p.Lines < 3 {
			t.Errorf("%s has %d lines of text", p.URL, p.Lines)
		}
	}
	if !slices.Contains(s.Hits, "docs/guide/bgp.html") {
		t.Errorf(`the search for "failover bfd" leads to %q, not to the page on BGP`, s.Hits)
	}
}
