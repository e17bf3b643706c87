package released

import (
	"archive/tar"
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
		packages, licences := imageContents(t, filepath.Join(dist, "oci"), arch)
		if packages["iptables"] == "" || packages["libc6"] == "" || !strings.Contains(licences, "\ngithub.com/osrg/gobgp/v3@") {
			t.Fatalf("the image for %s has the packages %v and the licences\n%.200s", arch, packages, licences)
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

// imageContents are the versions of the Debian packages in the image of a layout, and the licences of its programs.
func imageContents(t *testing.T, layout, arch string) (packages map[string]string, licences string) {
	t.Helper()
	blob := func(d ocispec.Descriptor) string {
		return filepath.Join(layout, "blobs", d.Digest.Algorithm().String(), d.Digest.Encoded())
	}
	var all, image ocispec.Index
	read(t, filepath.Join(layout, "index.json"), &all)
	for _, m := range all.Manifests {
		if ref := m.Annotations[ocispec.AnnotationRefName]; strings.HasPrefix(ref, "fairlead:") && !strings.HasSuffix(ref, ".sig") {
			read(t, blob(m), &image)
		}
	}
	var manifest ocispec.Manifest
	for _, m := range image.Manifests {
		if m.Platform.Architecture == arch {
			read(t, blob(m), &manifest)
		}
	}
	packages = map[string]string{}
	for _, layer := range manifest.Layers {
		eachFile(t, blob(layer), func(name, text string) {
			if name == "usr/share/doc/fairlead/licences.txt" {
				licences = text
			}
			if of, is := strings.CutPrefix(name, "var/lib/dpkg/status.d/"); is {
				_, after, _ := strings.Cut(text, "\nVersion: ")
				packages[of], _, _ = strings.Cut(after, "\n")
			}
		})
	}
	return packages, licences
}

func eachFile(t *testing.T, layer string, do func(name, text string)) {
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
		if header.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		do(header.Name, string(text))
	}
}
