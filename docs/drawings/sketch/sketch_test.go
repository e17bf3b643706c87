package sketch

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatCannotBeDrawnIsNamed: an error has the line and what is wrong with it.
func TestWhatCannotBeDrawnIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"size 10 10\ncircle 1 2": `line 2: "circle" is no thing`,
		"box 1 2 3":              "line 1: box takes 4 numbers",
		"# a\n\ndot 1 x":         `line 3: "x" is no number`,
	} {
		if _, err := SVG(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %q the error is %v, without %q", text, err, want)
		}
	}
}

// TestDrawingsAreXML: browsers show nothing of a picture that is not.
func TestDrawingsAreXML(t *testing.T) {
	t.Parallel()
	texts, err := filepath.Glob("../*.txt")
	if err != nil || len(texts) == 0 {
		t.Fatalf("there are no drawings: %v", err)
	}
	for _, path := range texts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		svg, err := SVG(string(text) + "\ntext 1 1 | <&>")
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(strings.NewReader(string(svg))); err == nil; {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
