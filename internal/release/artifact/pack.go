// Package artifact keeps what is released in one OCI layout, each under its name and version, and
// publishes that to a registry.
package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"sigs.k8s.io/yaml"
)

const (
	// The media types that Helm knows, see https://helm.sh/docs/topics/registries.
	chartConfig  = "application/vnd.cncf.helm.config.v1+json"
	chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	// filesType is the type of the artifact that holds plain files.
	filesType = "application/vnd.fairlead.release.v1"
	fileType  = "application/octet-stream"
)

// AddChart adds a packed chart to an OCI layout, as charts/NAME:VERSION, where Helm expects it. created is
// the time of the release as RFC 3339 has it. An error names the chart.
func AddChart(ctx context.Context, layout, chart, created string) error {
	text, err := os.ReadFile(chart)
	if err != nil {
		return err
	}
	metadata, err := chartMetadata(text)
	if err != nil {
		return fmt.Errorf("%s: %w", chart, err)
	}
	var is struct{ Name, Version string }
	if err := json.Unmarshal(metadata, &is); err != nil {
		return fmt.Errorf("%s: Chart.yaml: %w", chart, err)
	}
	store, err := oci.NewWithContext(ctx, layout)
	if err != nil {
		return err
	}
	config, err := push(ctx, store, chartConfig, metadata)
	if err != nil {
		return err
	}
	layer, err := push(ctx, store, chartContent, text)
	if err != nil {
		return err
	}
	return pack(ctx, store, "charts/"+is.Name+":"+is.Version, "", created, oras.PackManifestOptions{
		ConfigDescriptor: &config, Layers: []ocispec.Descriptor{layer},
	})
}

// AddFiles adds plain files to an OCI layout as one artifact with the given name and tag; "oras pull"
// writes them under their names. An error names the file.
func AddFiles(ctx context.Context, layout, name, created string, files []string) error {
	store, err := oci.NewWithContext(ctx, layout)
	if err != nil {
		return err
	}
	var layers []ocispec.Descriptor
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		layer, err := push(ctx, store, fileType, text)
		if err != nil {
			return err
		}
		layer.Annotations = map[string]string{ocispec.AnnotationTitle: filepath.Base(file)}
		layers = append(layers, layer)
	}
	return pack(ctx, store, name, filesType, created, oras.PackManifestOptions{Layers: layers})
}

func pack(ctx context.Context, store *oci.Store, ref, artifactType, created string, options oras.PackManifestOptions) error {
	options.ManifestAnnotations = map[string]string{ocispec.AnnotationCreated: created}
	manifest, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, artifactType, options)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	return store.Tag(ctx, manifest, ref)
}

// push writes a blob that may be there already.
func push(ctx context.Context, store *oci.Store, mediaType string, blob []byte) (ocispec.Descriptor, error) {
	is := content.NewDescriptorFromBytes(mediaType, blob)
	err := store.Push(ctx, is, bytes.NewReader(blob))
	if errors.Is(err, errdef.ErrAlreadyExists) {
		err = nil
	}
	return is, err
}

// chartMetadata is the Chart.yaml of a packed chart, as JSON.
func chartMetadata(chart []byte) ([]byte, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(chart))
	if err != nil {
		return nil, err
	}
	files := tar.NewReader(zipped)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("no chart, there is no Chart.yaml in it: give a file that helm package has made")
		}
		if err != nil {
			return nil, err
		}
		if _, name, _ := strings.Cut(header.Name, "/"); name != "Chart.yaml" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		return yaml.YAMLToJSON(text)
	}
}
