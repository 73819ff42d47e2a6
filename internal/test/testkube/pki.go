package testkube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of a cluster with one key. The files in its directory are NAME.crt and NAME.key.
type authority struct {
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// newAuthority creates an authority. Its own files are ca.crt and ca.key.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	cert, key, err := a.sign("ca", &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	a.cert, a.key = cert, key
	return a, err
}

// issue creates a certificate for an API client with that name and group, which may also serve at hosts.
func (a *authority) issue(file, name, group string, hosts ...string) error {
	subject := pkix.Name{CommonName: name}
	if group != "" {
		subject.Organization = []string{group}
	}
	template := &x509.Certificate{
		Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	_, _, err := a.sign(file, template)
	return err
}

// Ending creates the certificate and key of an API client, in one text. The certificate expires after left.
func (c *Cluster) Ending(name, group string, left time.Duration) ([]byte, error) {
	const file = "ending"
	_, _, err := c.pki.sign(file, &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{group}}, NotAfter: time.Now().Add(left),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	cert, err := os.ReadFile(c.file(file + ".crt"))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(c.file(file + ".key"))
	return append(cert, key...), err
}

// sign writes a certificate and its key. The authority's own certificate signs itself.
func (a *authority) sign(file string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	a.serial++
	template.SerialNumber = big.NewInt(a.serial)
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", file, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", file, err)
	}
	err = errors.Join(
		a.write(file+".crt", "CERTIFICATE", der),
		a.write(file+".key", "EC PRIVATE KEY", secret),
	)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func (a *authority) write(file, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// kubeconfig writes NAME.conf, the configuration for the holder of the certificate NAME.
func (a *authority) kubeconfig(name string) error {
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: test,
  clusters: [{name: test, cluster: {server: "https://127.0.0.1:%d", certificate-authority: %s/ca.crt}}],
  users: [{name: test, user: {client-certificate: %s/%s.crt, client-key: %s/%s.key}}],
  contexts: [{name: test, context: {cluster: test, user: test}}]}
`, apiPort, a.dir, a.dir, name, a.dir, name)
	return os.WriteFile(filepath.Join(a.dir, name+".conf"), []byte(text), 0o600)
}
