package pages

import (
	"bytes"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// root is the repository.
const root = "../../.."

// built is the site in a folder of its own.
func built(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	if _, err := Build(root, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// read is what a page of the site links to or shows, and the names of its parts.
func read(t *testing.T, text []byte) (links []string, parts map[string]bool) {
	t.Helper()
	doc, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	parts = map[string]bool{"": true}
	for n := range doc.Descendants() {
		for _, a := range n.Attr {
			switch a.Key {
			case "href", "src":
				links = append(links, a.Val)
			case "id":
				if parts[a.Val] {
					t.Errorf("two parts of a page are called %q", a.Val)
				}
				parts[a.Val] = true
			}
		}
	}
	return links, parts
}

// TestNoLinkIsDead follows each link of each page from the front page on: it leads to a file of the site, and to
// a part that is there. All pages of docs are reached.
func TestNoLinkIsDead(t *testing.T) {
	t.Parallel()
	out := built(t)
	type seen struct {
		links []string
		parts map[string]bool
	}
	site := map[string]seen{}
	visit := func(name string) seen {
		if _, is := site[name]; !is && path.Ext(name) == ".html" {
			text, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			links, parts := read(t, text)
			site[name] = seen{links, parts}
		}
		return site[name]
	}
	for queue := []string{"index.html"}; len(queue) > 0; queue = queue[1:] {
		here := queue[0]
		for _, link := range visit(here).links {
			u, err := url.Parse(link)
			if err != nil || u.IsAbs() {
				continue
			}
			to := here
			if u.Path != "" {
				to = path.Join(path.Dir(here), u.Path)
			}
			if _, err := os.Stat(filepath.Join(out, to)); err != nil {
				t.Errorf("%s links to %s: %v", here, link, err)
				continue
			}
			if _, known := site[to]; !known && path.Ext(to) == ".html" {
				queue = append(queue, to)
			}
			if path.Ext(to) == ".html" && !visit(to).parts[u.Fragment] {
				t.Errorf("%s links to %s, and there is no such part", here, link)
			}
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, _ fs.DirEntry, err error) error {
		if page, is := strings.CutPrefix(address(filepath.ToSlash(name)), root+"/"); is && strings.HasSuffix(name, ".md") {
			if _, reached := site[page]; !reached {
				t.Errorf("no link leads from the front page to %s", page)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(site) < 80 {
		t.Errorf("only %d pages were reached", len(site))
	}
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	t.Parallel()
	names := map[string]int{}
	for _, try := range []struct{ heading, want string }{
		{"Failover: when a node dies", "failover-when-a-node-dies"},
		{"What `a_b` is, and isn't", "what-a_b-is-and-isnt"},
		{"Failover: when a node dies", "failover-when-a-node-dies-1"},
	} {
		if got := anchor(try.heading, names); got != try.want {
			t.Errorf("%q is named %q, not %q", try.heading, got, try.want)
		}
	}
}

func TestLinksOutOfTheRepositoryAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := parse("docs/a.md", []byte("[up](../../b.md)")); err == nil || !strings.Contains(err.Error(), "../../b.md") {
		t.Errorf("the error does not name the link: %v", err)
	}
}
