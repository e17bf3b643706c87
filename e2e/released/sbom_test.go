package released

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// component is what an SBOM says of a package.
type component struct {
	Type, Name, Version, Purl string
	Licenses                  []any
}

// checkSBOMs checks that the SBOM of each image names all that a scanner finds in it: its Debian packages, and what both
// programs are linked from.
func checkSBOMs(t *testing.T, dist, version string) {
	t.Helper()
	for _, arch := range []string{"amd64", "arm64"} {
		packages := debianPackages(t, filepath.Join(dist, "oci"), arch)
		if packages["iptables"] == "" || packages["libc6"] == "" {
			t.Fatalf("the image for %s has %v", arch, packages)
		}
		var sbom struct {
			Metadata   struct{ Component component }
			Components []component
		}
		read(t, filepath.Join(dist, "fairlead-"+version+"-linux-"+arch+".cdx.json"), &sbom)
		if is := sbom.Metadata.Component; is.Type != "container" || is.Version != version {
			t.Errorf("the SBOM is that of %+v", is)
		}
		has := map[string]component{}
		for _, c := range sbom.Components {
			has[c.Name] = c
		}
		for name, version := range packages {
			purl := "pkg:deb/debian/" + name + "@" + strings.ReplaceAll(version, "+", "%2B") + "?arch=" + arch + "&"
			is := has[name]
			if is.Version != version || !strings.HasPrefix(strings.Replace(is.Purl, "arch=all", "arch="+arch, 1), purl) || len(is.Licenses) == 0 {
				t.Errorf("of %s %s in the image for %s the SBOM says %+v", name, version, arch, is)
			}
		}
		for _, name := range []string{"std", "github.com/osrg/gobgp/v3", "sigs.k8s.io/controller-runtime", "fairlead.dev/fairlead"} {
			if !strings.HasPrefix(has[name].Purl, "pkg:golang/"+name+"@") {
				t.Errorf("of %s for %s the SBOM says %+v", name, arch, has[name])
			}
		}
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// debianPackages are the versions of the Debian packages in the image of a layout.
func debianPackages(t *testing.T, layout, arch string) map[string]string {
	t.Helper()
	blob := func(d ocispec.Descriptor) string { return filepath.Join(layout, "blobs", d.Digest.Algorithm().String(), d.Digest.Encoded()) }
	var all, image ocispec.Index
	read(t, filepath.Join(layout, "index.json"), &all)
	for _, m := range all.Manifests {
		if strings.HasPrefix(m.Annotations[ocispec.AnnotationRefName], "fairlead:") {
			read(t, blob(m), &image)
		}
	}
	var manifest ocispec.Manifest
	for _, m := range image.Manifests {
		if m.Platform.Architecture == arch {
			read(t, blob(m), &manifest)
		}
	}
	packages := map[string]string{}
	for _, layer := range manifest.Layers {
		addPackages(t, blob(layer), packages)
	}
	return packages
}

// addPackages adds those of a layer.
func addPackages(t *testing.T, layer string, to map[string]string) {
	t.Helper()
	file, err := os.Open(layer)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if dir, name := filepath.Split(header.Name); dir == "var/lib/dpkg/status.d/" && name != "" {
			text, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			_, after, _ := strings.Cut(string(text), "\nVersion: ")
			version, _, _ := strings.Cut(after, "\n")
			to[name] = cmp.Or(version, "none")
		}
	}
}
