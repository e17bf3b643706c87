// Package marked writes what a job found between two marks of a page of the documentation.
package marked

import (
	"fmt"
	"os"
	"strings"
)

// Write writes tables between the marks of a page that name a target of make, or to standard output if path is empty. An error names the
// page and the marks that it lacks.
func Write(path, target, tables string) error {
	if path == "" {
		fmt.Print(tables)
		return nil
	}
	begin, end := "<!-- make "+target+" writes from here -->\n", "<!-- to here -->\n"
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, has := strings.Cut(string(page), begin)
	_, after, ends := strings.Cut(rest, end)
	if !has || !ends {
		return fmt.Errorf("%s lacks the lines %q and %q, between which the tables go", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+tables+end+after), 0o600)
}
