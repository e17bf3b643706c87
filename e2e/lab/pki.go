package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki makes keys and certificates as PEM files in a directory, NAME.key and
// NAME.crt.
type pki struct {
	dir    string
	now    time.Time
	server string // the URL of the API server
}

type authority struct {
	pki
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// identity is what a certificate says of its holder.
type identity struct {
	commonName, organization string
	dns                      []string
	ips                      []net.IP
}

// createPKI makes all that a cluster with that many nodes needs, and the
// kubeconfig files of those that talk to the API server at that URL.
func createPKI(dir string, now time.Time, nodes int, server string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	p := pki{dir: dir, now: now, server: server}
	ca, err := p.authority("ca")
	if err != nil {
		return err
	}
	frontProxyCA, err := p.authority("front-proxy-ca")
	if err != nil {
		return err
	}
	if err := frontProxyCA.issue("front-proxy-client", identity{commonName: "front-proxy-client"}); err != nil {
		return err
	}
	if _, err := p.key("service-accounts"); err != nil { // signs tokens and checks them
		return err
	}
	if err := ca.issue("apiserver", apiServerIdentity()); err != nil {
		return err
	}
	const admins = "system:masters"
	users := map[string]identity{
		"admin":                    {commonName: "admin", organization: admins},
		"apiserver-kubelet-client": {commonName: "kube-apiserver-kubelet-client", organization: admins},
		"controller-manager":       {commonName: "system:kube-controller-manager"},
		"scheduler":                {commonName: "system:kube-scheduler"},
		"kube-proxy":               {commonName: "system:kube-proxy"},
		podNetworkUser:             {commonName: podNetworkUser, organization: admins},
	}
	for n := range nodes {
		name, addrs := nodeName(n+1), nodeAddresses(n+1)
		users[name] = identity{
			commonName: "system:node:" + name, organization: "system:nodes",
			dns: []string{name}, ips: []net.IP{addrs.v4.Addr().AsSlice(), addrs.v6.Addr().AsSlice()},
		}
	}
	for name, id := range users {
		if err := ca.issue(name, id); err != nil {
			return err
		}
		if err := p.kubeconfig(name); err != nil {
			return err
		}
	}
	return nil
}

func apiServerIdentity() identity {
	own, node := onLAN(10), nodeAddresses(1)
	return identity{
		commonName: "kube-apiserver",
		dns: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local", "localhost",
		},
		ips: []net.IP{
			net.ParseIP("127.0.0.1"), net.ParseIP(apiService4), net.ParseIP(apiService6),
			own.v4.Addr().AsSlice(), own.v6.Addr().AsSlice(), node.v4.Addr().AsSlice(), node.v6.Addr().AsSlice(),
		},
	}
}

func (p pki) authority(name string) (authority, error) {
	key, err := p.key(name)
	if err != nil {
		return authority{}, err
	}
	template := p.template(identity{commonName: "lab-" + name})
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	template.IsCA, template.BasicConstraintsValid = true, true
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	return authority{pki: p, cert: cert, key: key}, p.write(name+".crt", "CERTIFICATE", der)
}

// issue makes a key and a certificate, good for clients and servers.
func (a authority) issue(name string, id identity) error {
	key, err := a.pki.key(name)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, a.template(id), a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	return a.write(name+".crt", "CERTIFICATE", der)
}

func (p pki) template(id identity) *x509.Certificate {
	subject := pkix.Name{CommonName: id.commonName}
	if id.organization != "" {
		subject.Organization = []string{id.organization}
	}
	return &x509.Certificate{
		Subject:     subject,
		NotBefore:   p.now.Add(-time.Hour),
		NotAfter:    p.now.AddDate(10, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    id.dns,
		IPAddresses: id.ips,
	}
}

func (p pki) key(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, p.write(name+".key", "EC PRIVATE KEY", der)
}

// kubeconfig writes NAME.conf for a user of the API server.
func (p pki) kubeconfig(user string) error {
	encoded := make(map[string]string)
	for _, file := range []string{"ca.crt", user + ".crt", user + ".key"} {
		text, err := os.ReadFile(filepath.Join(p.dir, file))
		if err != nil {
			return err
		}
		encoded[file] = base64.StdEncoding.EncodeToString(text)
	}
	text, err := render("kubeconfig.yaml", map[string]string{
		"User": user, "Server": p.server, "CA": encoded["ca.crt"],
		"Certificate": encoded[user+".crt"], "Key": encoded[user+".key"],
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.dir, user+".conf"), text, 0o600)
}

func (p pki) write(name, kind string, der []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(filepath.Join(p.dir, name), text, 0o600)
}
