package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"fairlead.dev/fairlead/internal/release/artifact"
)

const created = "2026-11-28T12:00:00Z"

// release is a layout with an image for the architectures, a chart and a file.
func release(t *testing.T, architectures ...string) string {
	t.Helper()
	dir := t.TempDir()
	layout := filepath.Join(dir, "oci")
	store, err := oci.New(layout)
	if err != nil {
		t.Fatal(err)
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, arch := range architectures {
		manifest, err := oras.PackManifest(t.Context(), store, oras.PackManifestVersion1_1, "test/"+arch, oras.PackManifestOptions{
			ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: created},
		})
		if err != nil {
			t.Fatal(err)
		}
		manifest.Platform = &ocispec.Platform{OS: "linux", Architecture: arch}
		index.Manifests = append(index.Manifests, manifest)
	}
	text, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	is, err := oras.PushBytes(t.Context(), store, index.MediaType, text)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Tag(t.Context(), is, "fairlead:0.1.0"); err != nil {
		t.Fatal(err)
	}
	chart := filepath.Join(dir, "fairlead-0.1.0.tgz")
	write(t, chart, packed(t, "fairlead/Chart.yaml", "apiVersion: v2\nname: fairlead\nversion: 0.1.0\n"))
	if err := artifact.AddChart(t.Context(), layout, chart, created); err != nil {
		t.Fatal(err)
	}
	if err := artifact.AddFiles(t.Context(), layout, "release:0.1.0", created, []string{chart}); err != nil {
		t.Fatal(err)
	}
	return layout
}

func packed(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	files := tar.NewWriter(zipped)
	if err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(files, text); err != nil {
		t.Fatal(err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve runs a real registry that refuses what refuse says, with a status.
func serve(t *testing.T, refuse func(*http.Request) int) (host string) {
	t.Helper()
	whole := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := refuse(r); status != 0 {
			w.WriteHeader(status)
			return
		}
		whole.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func nothing(*http.Request) int { return 0 }

func tags(t *testing.T, host, name string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/v2/%s/tags/list", host, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var list struct{ Tags []string }
	_ = json.NewDecoder(answer.Body).Decode(&list) // an unknown name has an error in place of a list
	return strings.Join(list.Tags, " ")
}

func TestAllIsPublishedOnceAndAgain(t *testing.T) {
	layout, host := release(t, "amd64", "arm64"), serve(t, nothing)
	for range 2 {
		var said strings.Builder
		if err := artifact.Publish(t.Context(), layout, host+"/team", []string{"amd64", "arm64"}, &said); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"team/fairlead", "team/charts/fairlead", "team/release"} {
			if got := tags(t, host, name); got != "0.1.0" || !strings.Contains(said.String(), name+":0.1.0@sha256:") {
				t.Errorf("%s has the tags %q, and publish said\n%s", name, got, said.String())
			}
		}
	}
}

func TestPublishRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		architectures []string
		refuse        func(*http.Request) int
		want          string
	}{
		"no login": {refuse: func(*http.Request) int { return http.StatusUnauthorized }, want: "docker login"},
		"forbidden to write": {refuse: func(r *http.Request) int {
			if r.Method == http.MethodPost {
				return http.StatusForbidden
			}
			return 0
		}, want: "log in as a user that may push there"},
		"out of room, for the last artifact": {refuse: func(r *http.Request) int {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/release/") {
				return http.StatusInsufficientStorage
			}
			return 0
		}, want: "release:0.1.0 is not published"},
		"one architecture": {architectures: []string{"amd64"}, want: `fairlead:0.1.0 is for amd64 and not for arm64, whose nodes could not run it: make release ARCHITECTURES="amd64 arm64"`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.architectures == nil {
				c.architectures = []string{"amd64", "arm64"}
			}
			var accept atomic.Bool
			host := serve(t, func(r *http.Request) int {
				if !accept.Load() && c.refuse != nil {
					return c.refuse(r)
				}
				return 0
			})
			err := artifact.Publish(t.Context(), release(t, c.architectures...), host, []string{"amd64", "arm64"}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v\nwant one line with %s", err, c.want)
			}
			accept.Store(true)
			for _, name := range []string{"fairlead", "charts/fairlead", "release"} {
				if got := tags(t, host, name); got != "" {
					t.Errorf("%s got the tags %q", name, got)
				}
			}
		})
	}
}

func TestAPublishedVersionStays(t *testing.T) {
	host := serve(t, nothing)
	if err := artifact.Publish(t.Context(), release(t, "amd64"), host, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	err := artifact.Publish(t.Context(), release(t, "amd64", "arm64"), host, nil, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "is published already") || !strings.Contains(err.Error(), "raise VERSION") {
		t.Errorf("got %v", err)
	}
}

func TestNoRelease(t *testing.T) {
	err := artifact.Publish(t.Context(), t.TempDir(), "localhost:1", nil, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "run make release first") {
		t.Errorf("got %v", err)
	}
	err = artifact.Publish(t.Context(), release(t), "127.0.0.1:1", nil, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "name a registry that this machine reaches") {
		t.Errorf("got %v", err)
	}
	chart := filepath.Join(t.TempDir(), "x.tgz")
	write(t, chart, packed(t, "x/values.yaml", ""))
	if err := artifact.AddChart(t.Context(), t.TempDir(), chart, created); err == nil || !strings.Contains(err.Error(), "no Chart.yaml") {
		t.Errorf("got %v", err)
	}
}
