package charts_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// command is one of Helm's on a page, or code within a line, that may set values.
	command = regexp.MustCompile("(?:helm3? (?:install|upgrade)|--set)[^\n`]*(?:\\\\\n[^\n`]*)*")
	set     = regexp.MustCompile(`--set(?:-string)?[ =]('[^']*'|\S+)`)
	run     = regexp.MustCompile(`\$\([^)]*\)`) // what the shell puts there, an address in all cases
)

// settings are the --set of each command on a page.
func settings(page string) (all [][]string) {
	for _, c := range command.FindAllString(run.ReplaceAllString(page, "192.0.2.5"), -1) {
		var values []string
		for _, match := range set.FindAllStringSubmatch(c, -1) {
			values = append(values, "--set="+strings.Trim(match[1], "'"))
		}
		if len(values) > 0 {
			all = append(all, values)
		}
	}
	return all
}

// TestWhatPagesSetRenders: Helm takes what each command on a page sets, as the chart has it.
func TestWhatPagesSetRenders(t *testing.T) {
	t.Parallel()
	pages := []string{"../README.md", "fairlead/README.md"}
	err := filepath.WalkDir("../docs", func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".md" && !strings.Contains(name, "/adr/") {
			pages = append(pages, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, values := range settings(string(text)) {
			key := strings.Join(values, " ")
			if tried[key] {
				continue
			}
			tried[key] = true
			if _, err := helm(t, helms(t)["helm4"], nil, append([]string{"template", "fairlead", chart, "--namespace", namespace}, values...)...); err != nil {
				t.Errorf("%s shows %s, which Helm refuses: %v", page, key, err)
			}
		}
	}
	if len(tried) < 15 {
		t.Errorf("only %d commands found: the pattern is out of date", len(tried))
	}
}
