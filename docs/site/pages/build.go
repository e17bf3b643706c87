// Package pages makes a site of the project's Markdown: a page for each file that can be reached from
// README.md, all other files that pages link to, and an index for the search. The site needs neither a
// server nor a network.
package pages

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed page.html style.css search.js
var files embed.FS

// contents is the page with the lists that are the menu of all pages.
const contents = "docs/README.md"

// group is a part of the menu.
type group struct {
	Title string
	Items []item
}

type item struct{ Title, URL string }

// found is what the search finds.
type found struct {
	Page    string `json:"page"`
	Heading string `json:"heading"`
	URL     string `json:"url"`
	Text    string `json:"text"`
}

// Build makes the site in a folder, and returns how many pages it has. An error names the page or the link
// that is at fault.
func Build(root, out string) (int, error) {
	all, others, err := crawl(root)
	if err != nil {
		return 0, err
	}
	var menu []group
	for _, p := range all {
		if p.source == contents {
			menu = p.menu()
		}
	}
	whole := template.Must(template.ParseFS(files, "page.html"))
	var index []found
	for _, p := range all {
		to := address(p.source)
		index = append(index, p.index(to)...)
		var b bytes.Buffer
		err := whole.Execute(&b, map[string]any{
			"Page": p, "Menu": menu, "Here": to, "Root": strings.Repeat("../", strings.Count(to, "/")),
		})
		if err != nil {
			return 0, err
		}
		if err := write(out, to, b.Bytes()); err != nil {
			return 0, err
		}
	}
	for _, name := range others {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return 0, err
		}
		if err := write(out, address(name), data); err != nil {
			return 0, err
		}
	}
	return len(all), finish(out, index)
}

// finish writes what all pages use.
func finish(out string, index []found) error {
	for _, name := range []string{"style.css", "search.js"} {
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := write(out, name, data); err != nil {
			return err
		}
	}
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	// A script and not JSON: browsers load no JSON from files.
	return write(out, "search-index.js", fmt.Appendf(nil, "window.searchIndex = %s\n", data))
}

// crawl reads README.md, each page that a page links to, and the names of all other files that they link to.
func crawl(root string) (all []*page, others []string, err error) {
	seen, queue := map[string]bool{}, []string{"README.md"}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		if path.Ext(name) != ".md" {
			others = append(others, name)
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, nil, err
		}
		p, err := parse(name, src)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, p)
		for _, t := range p.targets {
			queue = append(queue, t.path)
		}
	}
	return all, others, nil
}

// menu are the links of the page, by the headings that they are under.
func (p *page) menu() (groups []group) {
	for _, t := range p.targets {
		if len(groups) == 0 || groups[len(groups)-1].Title != t.below {
			groups = append(groups, group{Title: t.below})
		}
		g := &groups[len(groups)-1]
		g.Items = append(g.Items, item{t.words, address(t.path)})
	}
	return groups
}

// index is what the search finds of the page.
func (p *page) index(to string) (all []found) {
	for _, s := range p.Sections {
		text := strings.TrimPrefix(s.Text, s.Title) // which is below the heading, too
		all = append(all, found{p.Title, s.Title, to + "#" + s.Anchor, strings.Join(strings.Fields(text), " ")})
	}
	return all
}

// Contents are the headings that the page lists beside its text.
func (p *page) Contents() (all []*section) {
	for _, s := range p.Sections {
		if s.Level == 2 {
			all = append(all, s)
		}
	}
	return all
}

func write(out, name string, data []byte) error {
	to := filepath.Join(out, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
