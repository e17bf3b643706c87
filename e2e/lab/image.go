package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Image says what a container image holds. Write makes an archive of it, which
// needs no registry and no container engine.
type Image struct {
	Name       string            // with tag
	Base       string            // a root file system archive to stand on, "" for none
	Files      map[string]string // path in the image → file of this machine
	Texts      map[string]string // path in the image → text of the file, which may be a program
	Links      map[string]string // path in the image → target of a symbolic link
	Entrypoint []string
	Cmd        []string
}

// Write writes the image to the file name in the docker-archive format, which
// "ctr images import", docker load and buildah read. An error is that of reading a part or
// writing the archive.
func (im Image) Write(name string) (err error) {
	half := name + ".half"
	f, err := os.Create(half)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)

	var layers, diffs []string
	if im.Base != "" {
		sum, err := copyLayer(w, im.Base)
		if err != nil {
			return err
		}
		layers, diffs = append(layers, sum+".tar"), append(diffs, "sha256:"+sum)
	}
	top, err := im.topLayer()
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(top))
	layers, diffs = append(layers, sum+".tar"), append(diffs, "sha256:"+sum)

	config, err := im.config(diffs)
	if err != nil {
		return err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{im.Name}, "Layers": layers}})
	if err != nil {
		return err
	}
	err = errors.Join(
		putFile(w, sum+".tar", 0o644, top),
		putFile(w, configName, 0o644, config),
		putFile(w, "manifest.json", 0o644, manifest),
		w.Close(),
	)
	if err != nil {
		return err
	}
	return os.Rename(half, name)
}

// config is the image's configuration, as the OCI image specification has it.
func (im Image) config(diffs []string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": im.Entrypoint, "Cmd": im.Cmd, "WorkingDir": "/", "Env": []string{"PATH=" + debianPath},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
}

// topLayer is an archive of all that the image adds to its base.
func (im Image) topLayer() ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dst := range slices.Sorted(maps.Keys(im.Files)) {
		data, err := os.ReadFile(im.Files[dst])
		if err != nil {
			return nil, err
		}
		if err := putFile(w, dst, 0o755, data); err != nil {
			return nil, err
		}
	}
	for _, dst := range slices.Sorted(maps.Keys(im.Texts)) {
		if err := putFile(w, dst, 0o755, []byte(im.Texts[dst])); err != nil {
			return nil, err
		}
	}
	for _, dst := range slices.Sorted(maps.Keys(im.Links)) {
		h := &tar.Header{Typeflag: tar.TypeSymlink, Name: inArchive(dst), Linkname: im.Links[dst], Mode: 0o777}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return nil, err
	}
	err := w.Close()
	return layer.Bytes(), err
}

// copyLayer copies the file name as a layer and gives its SHA-256, which names it.
func copyLayer(w *tar.Writer, name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if err := w.WriteHeader(&tar.Header{Name: sum + ".tar", Mode: 0o644, Size: size}); err != nil {
		return "", err
	}
	_, err = io.Copy(w, f)
	return sum, err
}

func putFile(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: inArchive(name), Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// inArchive is how an archive names an absolute path.
func inArchive(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }
