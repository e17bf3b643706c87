// Command site builds the documentation as a site of plain files, with search and without a network.
package main

import (
	"flag"
	"fmt"
	"os"

	"fairlead.dev/fairlead/docs/site/pages"
)

func main() {
	root := flag.String("root", ".", "the repository")
	out := flag.String("out", "build/site", "the folder for the site; what is in it is replaced")
	flag.Parse()
	if err := os.RemoveAll(*out); err != nil {
		fail(err)
	}
	n, err := pages.Build(*root, *out)
	if err != nil {
		fail(err)
	}
	fmt.Printf("%d pages: open %s/index.html\n", n, *out)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
