package artifact

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
)

// As cosign, Kyverno, Flux and others read them:
// https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
const (
	signedType          = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// signed is what a signature is of.
type signed struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]string `json:"optional"`
}

// Sign adds to an OCI layout the signature of each artifact in it, for which that is to be published below the registry. An
// error names the artifact.
func Sign(ctx context.Context, layout, registry, created string, key Key) error {
	store, err := oci.NewWithContext(ctx, layout)
	if err != nil {
		return err
	}
	var refs []string
	if err := store.Tags(ctx, "", func(some []string) error {
		refs = append(refs, some...)
		return nil
	}); err != nil {
		return err
	}
	for _, ref := range refs {
		name, tag, _ := strings.Cut(ref, ":")
		if isSignature(tag) {
			continue
		}
		if err := sign(ctx, store, registry+"/"+name, ref, created, key); err != nil {
			return fmt.Errorf("sign %s: %w", ref, err)
		}
	}
	return nil
}

func sign(ctx context.Context, store *oci.Store, reference, ref, created string, key Key) error {
	is, err := store.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	var what signed
	what.Critical.Identity.Reference = reference
	what.Critical.Image.Digest = is.Digest.String()
	what.Critical.Type = "cosign container image signature"
	payload, err := json.Marshal(what)
	if err != nil {
		return err
	}
	signature, err := key.Sign(payload)
	if err != nil {
		return err
	}
	layer, err := push(ctx, store, signedType, payload)
	if err != nil {
		return err
	}
	image := ocispec.Image{RootFS: ocispec.RootFS{Type: "layers"}}
	image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, layer.Digest)
	config, err := json.Marshal(image)
	if err != nil {
		return err
	}
	about, err := push(ctx, store, ocispec.MediaTypeImageConfig, config)
	if err != nil {
		return err
	}
	layer.Annotations = map[string]string{signatureAnnotation: signature}
	name, _, _ := strings.Cut(ref, ":")
	return pack(ctx, store, name+":"+signatureTag(is), "", created, oras.PackManifestOptions{
		ConfigDescriptor: &about, Layers: []ocispec.Descriptor{layer},
	})
}

// signatureTag is where the signature of an artifact is found.
func signatureTag(of ocispec.Descriptor) string {
	return of.Digest.Algorithm().String() + "-" + of.Digest.Encoded() + ".sig"
}

func isSignature(tag string) bool { return strings.HasSuffix(tag, ".sig") }
