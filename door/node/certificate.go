package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// ownCertificate is how long a certificate holds that the node signs itself.
const ownCertificate = 365 * 24 * time.Hour

// serving is the TLS configuration of the node's API. Client certificates are asked for and judged
// later, for a token will do as well.
func (n *node) serving() (*tls.Config, error) {
	var cert tls.Certificate
	var err error
	if n.o.Cert != "" {
		cert, err = tls.LoadX509KeyPair(n.o.Cert, n.o.Key)
	} else {
		cert, err = selfSigned(n.o.Name, n.o.IP)
	}
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert,
		NextProtos: []string{"http/1.1"}, // streams are upgrades of connections
	}, nil
}

// selfSigned makes a certificate for a name and an address, which lives as long as the process.
func selfSigned(name, ip string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"bulkhead node"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownCertificate),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{name}, IPAddresses: []net.IP{net.ParseIP(ip)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// clientAuthorities are those of the file, or of the API server's configuration if none is named.
func clientAuthorities(file string, config *rest.Config) (*x509.CertPool, error) {
	data := config.CAData
	if file == "" && len(data) == 0 {
		file = config.CAFile
	}
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("authorities of clients: %w", err)
		}
	}
	if len(data) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("authorities of clients: there is no certificate")
	}
	return pool, nil
}
