// Package docs_test holds the documentation against the product: what it tells
// readers to apply is admitted, what it links to is there, and every metric is in it.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/admission"
)

// pages are the paths of README.md and of all pages below docs, to their texts.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"../README.md", "../CHANGELOG.md"}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	return texts
}

// block is a fenced block of a page.
var block = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// TestEveryManifestIsAdmitted takes each YAML document of the pages as the API
// server would: ours by schema and rules, those of Kubernetes by strict decoding.
func TestEveryManifestIsAdmitted(t *testing.T) {
	t.Parallel()
	kinds := map[string]*admission.Admission{}
	for kind, d := range admission.Definitions(t, "../config/crd") {
		kinds[kind] = d.Admission(t)
	}
	strict := serializer.NewCodecFactory(clientgoscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	shown := map[string]int{}
	for path, text := range pages(t) {
		for i, found := range block.FindAllStringSubmatch(text, -1) {
			if found[1] != "yaml" {
				continue
			}
			for j, document := range strings.Split(found[2], "\n---\n") {
				t.Run(fmt.Sprintf("%s/%d.%d", path, i+1, j+1), func(t *testing.T) {
					object := admission.Parse(t, document)
					kind, _ := object["kind"].(string)
					shown[kind]++
					if object["apiVersion"] == v1beta1.GroupVersion.String() && kinds[kind] != nil {
						errs, unknown := kinds[kind].Admit(t, object)
						if len(errs) > 0 || len(unknown) > 0 {
							t.Errorf("refused: %v, unknown fields %q\n%s", errs.ToAggregate(), unknown, document)
						}
						return
					}
					if _, _, err := strict.Decode([]byte(document), nil, nil); err != nil {
						t.Errorf("%v\n%s", err, document)
					}
				})
			}
		}
	}
	for kind := range kinds {
		if shown[kind] == 0 {
			t.Errorf("no page shows a %s", kind)
		}
	}
}

var (
	// link is a link that is not to a web page: to a file, to a heading, or to both.
	link = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)]*))?\)`)
	// quoted is code within a line, which has no links.
	quoted = regexp.MustCompile("`[^`\n]*`")
	// heading is a heading of a page, and unnamed what its anchor leaves out.
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unnamed = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the names by which links lead to the headings of a page.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		names[strings.ReplaceAll(unnamed.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")] = true
	}
	return names
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	texts, headings := pages(t), 0
	for path, text := range texts {
		for _, found := range link.FindAllStringSubmatch(quoted.ReplaceAllString(block.ReplaceAllString(text, ""), ""), -1) {
			target := path
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(path), found[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if page, ok := texts[target]; ok && found[2] != "" {
				headings++
				if !anchors(page)[found[2]] {
					t.Errorf("%s links to %s, which has no heading #%s", path, target, found[2])
				}
			}
		}
	}
	if headings == 0 {
		t.Error("no link to a heading found: the pattern is out of date")
	}
}

// TestEveryDecisionIsListed: adr/README.md has a row with the title of each decision.
func TestEveryDecisionIsListed(t *testing.T) {
	t.Parallel()
	texts, decisions := pages(t), 0
	for path, text := range texts {
		if filepath.Dir(path) != "adr" || path == "adr/README.md" {
			continue
		}
		decisions++
		heading, _, _ := strings.Cut(text, "\n")
		number, title, _ := strings.Cut(strings.TrimPrefix(heading, "# "), ". ")
		if row := fmt.Sprintf("| %s | [%s](%s) |\n", number, title, filepath.Base(path)); !strings.Contains(texts["adr/README.md"], row) {
			t.Errorf("adr/README.md lacks this row: %s", row)
		}
	}
	if decisions == 0 {
		t.Error("no decision found: the test is out of date")
	}
}

// TestReasonsAndMetricsAreExplained holds the reference pages complete: a metric or a
// reason that the code has is on its page, and the other way round.
func TestReasonsAndMetricsAreExplained(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	for _, check := range []struct {
		what, page string
		inCode     *regexp.Regexp
		inPage     *regexp.Regexp
	}{
		{
			"metric", "metrics.md",
			regexp.MustCompile(`"(fairlead_[a-z0-9_]+)"|[=:]\s+describe\("([a-z0-9_]+)"`),
			regexp.MustCompile("(?m)^\\| `(fairlead_[a-z0-9_]+)`"),
		},
		{
			"reason", "guide/troubleshooting.md",
			regexp.MustCompile(`\n\tReason[A-Za-z]+ += "([A-Z][A-Za-z]+)"|\nconst Reason[A-Za-z]+ = "([A-Z][A-Za-z]+)"`),
			regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)`"),
		},
	} {
		code, page := map[string]bool{}, map[string]bool{}
		for _, source := range sources(t) {
			for _, found := range check.inCode.FindAllStringSubmatch(source, -1) {
				name := found[1]
				switch {
				case name == "" && check.what == "metric":
					name = "fairlead_pulse_" + found[2]
				case name == "":
					name = found[2]
				}
				code[name] = true
			}
		}
		for _, found := range check.inPage.FindAllStringSubmatch(texts[check.page], -1) {
			page[found[1]] = true
		}
		if len(code) == 0 {
			t.Errorf("no %s found in the code: the pattern is out of date", check.what)
		}
		for name := range code {
			if !page[name] {
				t.Errorf("docs/%s does not explain the %s %s", check.page, check.what, name)
			}
		}
		for name := range page {
			if !code[name] {
				t.Errorf("docs/%s explains the %s %s, which the code does not have", check.page, check.what, name)
			}
		}
	}
}

// TestMetricsThatPagesNameAreThere: alerts and tables elsewhere name metrics that
// docs/metrics.md explains, and it the others. A name that ends in "_" stands for several.
func TestMetricsThatPagesNameAreThere(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	explained := regexp.MustCompile("(?m)^\\| `(fairlead_[a-z0-9_]+)`").FindAllStringSubmatch(texts["metrics.md"], -1)
	named := regexp.MustCompile(`\bfairlead_[a-z0-9_]+`)
	series := regexp.MustCompile(`_(bucket|sum|count)$`) // of a histogram
	found := 0
	for path, text := range texts {
		for _, name := range named.FindAllString(text, -1) {
			found++
			is := func(metric []string) bool {
				return metric[1] == name || metric[1] == series.ReplaceAllString(name, "") ||
					strings.HasSuffix(name, "_") && strings.HasPrefix(metric[1], name)
			}
			if !slices.ContainsFunc(explained, is) {
				t.Errorf("%s names the metric %s, which docs/metrics.md does not explain", path, name)
			}
		}
	}
	if len(explained) == 0 || found <= len(explained) {
		t.Errorf("%d metrics are explained and %d named: a pattern is out of date", len(explained), found)
	}
}

// sources are the texts of the programs' Go files.
func sources(t *testing.T) []string {
	t.Helper()
	var texts []string
	for _, dir := range []string{"../api", "../controller", "../internal", "../speaker"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			texts = append(texts, string(text))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}
