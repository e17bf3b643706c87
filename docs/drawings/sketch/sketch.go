// Package sketch draws from text. Each line of it is one thing: what it is, its numbers, its style,
// and behind bars what is written there:
//
//	size 520 330
//	box X Y WIDTH HEIGHT STYLE | one line | another
//	text X Y STYLE | words
//	line X1 Y1 X2 Y2 STYLE | words in the middle
//	arrow X1 Y1 X2 Y2 STYLE | words in the middle
//	dot X Y STYLE
//
// The styles are in style.css, which gives light and dark colours. A line that begins with # is a comment.
package sketch

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"strconv"
	"strings"
)

//go:embed style.css
var style string

// numbers is how many numbers each thing takes.
var numbers = map[string]int{"size": 2, "box": 4, "text": 2, "line": 4, "arrow": 4, "dot": 2}

// spacing is how far apart the lines within a box are.
const spacing = 17

// SVG is the picture. An error names the line of the text that cannot be read, and what is wrong with it.
func SVG(text string) ([]byte, error) {
	var out bytes.Buffer
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := one(&out, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	out.WriteString("</svg>\n")
	return out.Bytes(), nil
}

func one(out *bytes.Buffer, line string) error {
	head, rest, _ := strings.Cut(line, "|")
	fields := strings.Fields(head)
	want, known := numbers[fields[0]]
	if !known {
		return fmt.Errorf("%q is no thing to draw", fields[0])
	}
	if len(fields) <= want {
		return fmt.Errorf("%s takes %d numbers", fields[0], want)
	}
	n := make([]float64, want)
	for i := range n {
		var err error
		if n[i], err = strconv.ParseFloat(fields[i+1], 64); err != nil {
			return fmt.Errorf("%q is no number", fields[i+1])
		}
	}
	class := html.EscapeString(strings.Join(fields[want+1:], " "))
	var words []string
	if rest != "" {
		words = strings.Split(rest, "|")
	}
	switch fields[0] {
	case "size":
		fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %v %v" width="%[1]v" height="%v">`, n[0], n[1])
		fmt.Fprintf(out, "\n<style>\n%s</style>\n", style)
		fmt.Fprintf(out, `<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker></defs>`+"\n")
		fmt.Fprintf(out, `<rect class="paper" width="%v" height="%v"/>`+"\n", n[0], n[1])
	case "box":
		fmt.Fprintf(out, `<rect class="%s" x="%v" y="%v" width="%v" height="%v" rx="5"/>`+"\n", class, n[0], n[1], n[2], n[3])
		for i, w := range words {
			y := n[1] + n[3]/2 + 5 + spacing*(float64(i)-float64(len(words)-1)/2)
			write(out, n[0]+n[2]/2, y, "middle "+class, w)
		}
	case "text":
		write(out, n[0], n[1], class, strings.Join(words, "|"))
	case "dot":
		fmt.Fprintf(out, `<circle class="%s" cx="%v" cy="%v" r="4"/>`+"\n", class, n[0], n[1])
	case "line", "arrow":
		fmt.Fprintf(out, `<path class="%s %s" d="M%v %vL%v %v"/>`+"\n", fields[0], class, n[0], n[1], n[2], n[3])
		for _, w := range words {
			write(out, (n[0]+n[2])/2, (n[1]+n[3])/2-6, "middle small", w)
		}
	}
	return nil
}

func write(out *bytes.Buffer, x, y float64, class, words string) {
	fmt.Fprintf(out, `<text class="%s" x="%v" y="%v">%s</text>`+"\n", class, x, y, html.EscapeString(strings.TrimSpace(words)))
}
