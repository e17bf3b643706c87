package artifact

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

const makeKey = "make one with cosign generate-key-pair, or openssl ecparam -genkey -name prime256v1 -noout"

// Key signs as cosign does: ECDSA over SHA-256, in base64. The same bytes have the same signature each time (RFC 6979).
type Key struct{ private *ecdsa.PrivateKey }

// ReadKey returns the private key in a PEM file of openssl or of cosign, of which the latter has a password. An error names the
// file and what to do, and has nothing of its contents.
func ReadKey(file, password string) (Key, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Key{}, fmt.Errorf("the key cannot be read: %w: %s", err, makeKey)
	}
	private, err := parse(text, password)
	if err != nil {
		return Key{}, fmt.Errorf("%s %w", file, err)
	}
	if private.Curve != elliptic.P256() {
		return Key{}, fmt.Errorf("%s has a key of the curve %s, and cosign wants P-256: %s", file, private.Params().Name, makeKey)
	}
	return Key{private}, nil
}

func parse(text []byte, password string) (*ecdsa.PrivateKey, error) {
	noKey := errors.New("has no private key of ECDSA in PEM: " + makeKey)
	block, rest := pem.Decode(text)
	for block != nil && block.Type == "EC PARAMETERS" {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, noKey
	}
	der := block.Bytes
	switch block.Type {
	case "EC PRIVATE KEY":
		if key, err := x509.ParseECPrivateKey(der); err == nil {
			return key, nil
		}
		return nil, noKey
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		var err error
		if der, err = encrypted.Decrypt(der, []byte(password)); err != nil {
			return nil, errors.New("is not opened by that password: set COSIGN_PASSWORD to the one of cosign generate-key-pair")
		}
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, is := parsed.(*ecdsa.PrivateKey)
	if err != nil || !is {
		return nil, noKey
	}
	return key, nil
}

// Sign returns the signature of a text, or an error of the key.
func (k Key) Sign(text []byte) (string, error) {
	sum := sha256.Sum256(text)
	signature, err := k.private.Sign(nil, sum[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}

// Public returns the key that verifies signatures, in PEM, or an error of the key.
func (k Key) Public() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&k.private.PublicKey)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}
