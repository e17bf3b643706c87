// Command drawings makes an SVG of each drawing's text (see sketch) in docs/drawings.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead.dev/fairlead/docs/drawings/sketch"
)

func main() {
	from := flag.String("from", "docs/drawings", "the folder with the texts, NAME.txt")
	to := flag.String("to", "docs/drawings", "the folder for the pictures, NAME.svg")
	flag.Parse()
	if err := draw(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func draw(from, to string) error {
	texts, err := filepath.Glob(filepath.Join(from, "*.txt"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, path := range texts {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		svg, err := sketch.SVG(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".txt") + ".svg"
		if err := os.WriteFile(filepath.Join(to, name), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}
