package lab

import (
	"bytes"
	"embed"
	"errors"
	"os"
	"path/filepath"
	"text/template"
)

// files are the configuration files of the lab's programs, as templates.
//
//go:embed files
var files embed.FS

func render(name string, data any) ([]byte, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(files, "files/"+name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, data)
	return out.Bytes(), err
}

// writeFiles writes files, by path under dir, with the directories above them.
func writeFiles(dir string, contents map[string][]byte) error {
	var errs []error
	for name, text := range contents {
		path := filepath.Join(dir, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o600))
	}
	return errors.Join(errs...)
}
