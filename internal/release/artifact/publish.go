package artifact

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"
	"oras.land/oras-go/v2/registry/remote/retry"
)

// upload is one artifact of a layout and where it goes.
type upload struct {
	name, tag string
	is        ocispec.Descriptor
	to        *remote.Repository
}

func (u upload) String() string { return u.to.Reference.String() + ":" + u.tag }

// Publish copies all that is in an OCI layout below a registry, such as registry.example.com/team: first
// the contents, then, once all of these are there, the tags, so that no reader finds half a release. Plain HTTP is for
// registries on this machine. An error names the artifact, what the registry said and what to do; nothing is tagged then
// unless the registry refused a tag itself. A tag that is there with other contents is an error.
func Publish(ctx context.Context, layout, registry string, architectures []string, progress io.Writer) error {
	store, err := oci.NewWithContext(ctx, layout)
	if err != nil {
		return fmt.Errorf("no release in %s: run make release first: %w", layout, err)
	}
	uploads, err := uploads(ctx, store, registry)
	if err != nil {
		return err
	}
	if len(uploads) == 0 {
		return fmt.Errorf("no release in %s: run make release first", layout)
	}
	for _, u := range uploads {
		if err := u.check(ctx, store, architectures); err != nil {
			return err
		}
	}
	for _, u := range uploads {
		if err := oras.CopyGraph(ctx, store, u.to, u.is, oras.DefaultCopyGraphOptions); err != nil {
			return u.refused(err)
		}
	}
	for _, u := range uploads {
		if err := u.to.Tag(ctx, u.is, u.tag); err != nil {
			return u.refused(err)
		}
		if _, err := fmt.Fprintf(progress, "%s@%s\n", u, u.is.Digest); err != nil {
			return err
		}
	}
	return nil
}

func uploads(ctx context.Context, store *oci.Store, registry string) ([]upload, error) {
	// The credentials of docker login and helm registry login.
	logins, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, err
	}
	client := &auth.Client{Client: retry.DefaultClient, Cache: auth.NewCache(), Credential: credentials.Credential(logins)}
	var all []upload
	err = store.Tags(ctx, "", func(refs []string) error {
		for _, ref := range refs {
			name, tag, _ := strings.Cut(ref, ":")
			to, err := remote.NewRepository(registry + "/" + name)
			if err != nil {
				return fmt.Errorf("REGISTRY=%s names no registry (%w): give a host and perhaps a path, such as registry.example.com/team", registry, err)
			}
			to.Client, to.PlainHTTP = client, local(to.Reference.Host())
			is, err := store.Resolve(ctx, ref)
			if err != nil {
				return err
			}
			all = append(all, upload{name: name, tag: tag, is: is, to: to})
		}
		return nil
	})
	// A tag is there once its signature is.
	slices.SortFunc(all, func(a, b upload) int {
		return cmp.Or(strings.Compare(a.name, b.name), -strings.Compare(a.tag, b.tag))
	})
	return all, err
}

// local reports whether a registry is on this machine, where there is no TLS.
func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}

// check finds before anything is sent what would make a bad release.
func (u upload) check(ctx context.Context, store *oci.Store, architectures []string) error {
	if u.is.MediaType == ocispec.MediaTypeImageIndex {
		if err := u.checkArchitectures(ctx, store, architectures); err != nil {
			return err
		}
	}
	there, err := u.to.Resolve(ctx, u.tag)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return nil
	case err != nil:
		return u.refused(err)
	case there.Digest != u.is.Digest:
		return fmt.Errorf("%s is published already, as %s, and would become %s: raise VERSION and release that", u, there.Digest, u.is.Digest)
	}
	return nil
}

func (u upload) checkArchitectures(ctx context.Context, store *oci.Store, wanted []string) error {
	text, err := content.FetchAll(ctx, store, u.is)
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return err
	}
	var has []string
	for _, m := range index.Manifests {
		if m.Platform != nil {
			has = append(has, m.Platform.Architecture)
		}
	}
	for _, arch := range wanted {
		if !slices.Contains(has, arch) {
			return fmt.Errorf("%s:%s is for %s and not for %s, whose nodes could not run it: make release ARCHITECTURES=%q",
				u.name, u.tag, strings.Join(has, " and "), arch, strings.Join(wanted, " "))
		}
	}
	return nil
}

// refused is the error of a registry, with what to do.
func (u upload) refused(err error) error {
	fix := "see what the registry's log says of it"
	var said *errcode.ErrorResponse
	var unreached *net.OpError
	switch {
	case errors.As(err, &said) && (said.StatusCode == http.StatusUnauthorized || said.StatusCode == http.StatusForbidden),
		errors.Is(err, auth.ErrBasicCredentialNotFound):
		fix = "log in as a user that may push there: docker login " + u.to.Reference.Host() + ", or helm registry login"
	case errors.As(err, &unreached), os.IsTimeout(err):
		fix = "name a registry that this machine reaches: REGISTRY=HOST[:PORT][/PATH]"
	}
	return fmt.Errorf("%s is not published: %w: %s", u, err, fix)
}
