package artifact_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"fairlead.dev/fairlead/internal/release/artifact"
)

const password = "correct horse"

func ellipticKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// pemFile writes a key as openssl and cosign do.
func pemFile(t *testing.T, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.pem")
	if strings.HasPrefix(kind, "ENCRYPTED") {
		var err error
		if der, err = encrypted.Encrypt(der, []byte(password)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	return file
}

// Each tag that is published has a signature of what the tag leads to, which the public key verifies. The format is
// that of cosign, whose verify has accepted what this test makes: docs/adr/0064-signatures-that-cosign-verifies.md.
func TestAllThatIsPublishedIsSigned(t *testing.T) {
	private := ellipticKey(t, elliptic.P256())
	old, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for kind, der := range map[string][]byte{
		"EC PRIVATE KEY": old, "PRIVATE KEY": pkcs8(t, private), "ENCRYPTED SIGSTORE PRIVATE KEY": pkcs8(t, private),
	} {
		key, err := artifact.ReadKey(pemFile(t, kind, der), password)
		if err != nil {
			t.Fatal(err)
		}
		layout, host := release(t, "amd64", "arm64"), serve(t, nothing)
		for range 2 {
			if err := artifact.Sign(t.Context(), layout, host, created, key); err != nil {
				t.Fatal(err)
			}
			if err := artifact.Publish(t.Context(), layout, host, []string{"amd64", "arm64"}, io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"fairlead", "charts/fairlead", "release"} {
			checkSigned(t, host, name, &private.PublicKey)
		}
		public, err := key.Public()
		if block, _ := pem.Decode(public); err != nil || block == nil || block.Type != "PUBLIC KEY" {
			t.Errorf("the public key is %q (%v)", public, err)
		}
	}
}

// checkSigned verifies the one signature of NAME:0.1.0.
func checkSigned(t *testing.T, host, name string, public *ecdsa.PublicKey) {
	t.Helper()
	repository, err := remote.NewRepository(host + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	repository.PlainHTTP = true
	is, err := repository.Resolve(t.Context(), "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := oras.FetchBytes(t.Context(), repository, strings.Replace(is.Digest.String(), ":", "-", 1)+".sig", oras.DefaultFetchBytesOptions)
	var manifest ocispec.Manifest
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.dev.cosign.simplesigning.v1+json" {
		t.Fatalf("the signature of %s is %s (%v)", name, text, err)
	}
	payload, err := content.FetchAll(t.Context(), repository, manifest.Layers[0])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"critical":{"identity":{"docker-reference":"` + host + "/" + name + `"},"image":{"docker-manifest-digest":"` + is.Digest.String() +
		`"},"type":"cosign container image signature"},"optional":null}`
	if string(payload) != want {
		t.Errorf("signed is\n%s\nwant\n%s", payload, want)
	}
	encoded := manifest.Layers[0].Annotations["dev.cosignproject.cosign/signature"]
	signature, err := base64.StdEncoding.DecodeString(encoded)
	sum := sha256.Sum256(payload)
	if err != nil || !ecdsa.VerifyASN1(public, sum[:], signature) {
		t.Errorf("%s has a signature that is not of this key: %q (%v)", name, encoded, err)
	}
}

func TestKeysThatDoNotSign(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private := pkcs8(t, ellipticKey(t, elliptic.P256()))
	noPEM := filepath.Join(t.TempDir(), "release.txt")
	write(t, noPEM, private)
	for name, c := range map[string]struct{ file, password, want string }{
		"none":           {file: filepath.Join(t.TempDir(), "none.pem"), want: "none.pem: no such file or directory: make one with cosign generate-key-pair"},
		"no PEM":         {file: noPEM, want: "release.txt has no private key of ECDSA in PEM: make one"},
		"empty":          {file: pemFile(t, "PRIVATE KEY", nil), want: "has no private key of ECDSA"},
		"a public key":   {file: pemFile(t, "PUBLIC KEY", private[:20]), want: "has no private key of ECDSA"},
		"Ed25519":        {file: pemFile(t, "PRIVATE KEY", pkcs8(t, edwards)), want: "has no private key of ECDSA"},
		"P-384":          {file: pemFile(t, "PRIVATE KEY", pkcs8(t, ellipticKey(t, elliptic.P384()))), want: "curve P-384, and cosign wants P-256"},
		"wrong password": {file: pemFile(t, "ENCRYPTED COSIGN PRIVATE KEY", private), password: "battery staple", want: "set COSIGN_PASSWORD"},
	} {
		_, err := artifact.ReadKey(c.file, c.password)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "battery") {
			t.Errorf("%s: got %v\nwant one line with %q", name, err, c.want)
		}
	}
}
