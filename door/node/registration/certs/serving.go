package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"

	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// maxAuthorities limits the file of client authorities, in bytes.
const maxAuthorities = 4 << 20

// ServingOptions configure the serving certificate of a node's API. Node, IP and Logger are required.
type ServingOptions struct {
	Node, IP string
	// Cert and Key are the files of the certificate. If empty, the certificate is requested (Rotate) or self-signed.
	Cert, Key string
	// Rotate requests the certificate by Client, keeps it in Dir and renews it. Until it is signed, a self-signed one
	// is used.
	Rotate bool
	Client kubernetes.Interface
	Dir    string
	// ClientCA is the file of the authorities of client certificates. If empty, ClientCAData is used, which may be
	// empty too.
	ClientCA     string
	ClientCAData []byte
	Logger       *slog.Logger
}

// Serving provides the current serving certificate and client authorities. It is safe for concurrent use.
type Serving struct {
	o       ServingOptions
	cert    atomic.Pointer[tls.Certificate]
	clients atomic.Pointer[x509.CertPool]
	failed  failures
	manager certificate.Manager // nil if the certificate is not requested
}

// NewServing reads the files or signs a certificate.
func NewServing(o ServingOptions) (*Serving, error) {
	s := &Serving{o: o}
	if err := s.loadClients(); err != nil {
		return nil, err
	}
	if o.Cert != "" {
		return s, s.loadCert()
	}
	own, err := selfSigned(o.Node, o.IP)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	s.cert.Store(&own)
	if !o.Rotate {
		return s, nil
	}
	files, err := newStore(o.Dir, servingPair, o.Logger, s.cert.Store)
	if err != nil {
		return nil, err
	}
	pair, err := files.current()
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	if pair != nil && time.Now().Before(pair.Leaf.NotAfter) {
		s.cert.Store(pair)
	}
	template := &x509.CertificateRequest{
		Subject: subject(o.Node), DNSNames: []string{o.Node}, IPAddresses: []net.IP{net.ParseIP(o.IP)},
	}
	s.manager, err = newManager(files, &s.failed, certificatesv1.KubeletServingSignerName, template,
		func(*tls.Certificate) (kubernetes.Interface, error) { return o.Client, nil })
	return s, err
}

// TLS returns the configuration of the API's server. It requests client certificates but does not verify them, because
// a client may use a token instead.
func (s *Serving) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Load(), nil },
		NextProtos:     []string{"http/1.1"}, // streams are upgrades of connections
	}
}

// Expires returns when the current certificate expires.
func (s *Serving) Expires() time.Time { return expiry(s.cert.Load()) }

// RenewFailures returns the number of failed renewals.
func (s *Serving) RenewFailures() uint64 { return s.failed.Load() }

// Clients returns the authorities of client certificates, or nil.
func (s *Serving) Clients() *x509.CertPool { return s.clients.Load() }

// Run watches the files and renews the certificate until ctx ends.
func (s *Serving) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	if s.manager != nil {
		s.manager.Start()
		defer s.manager.Stop()
	}
	if s.o.Cert != "" {
		all.Go(func() { s.watch(ctx, s.loadCert, s.o.Cert, s.o.Key) })
	}
	if s.o.ClientCA != "" {
		all.Go(func() { s.watch(ctx, s.loadClients, s.o.ClientCA) })
	}
	<-ctx.Done()
}

func (s *Serving) loadCert() error {
	if err := trusted.Files(s.o.Cert, s.o.Key); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(s.o.Cert, s.o.Key)
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	s.cert.Store(&pair)
	return nil
}

func (s *Serving) loadClients() error {
	data := s.o.ClientCAData
	if s.o.ClientCA != "" {
		var err error
		if data, err = trusted.Read(s.o.ClientCA, maxAuthorities); err != nil {
			return fmt.Errorf("authorities of clients: %w", err)
		}
	}
	if len(data) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return errors.New("authorities of clients: no certificate found in PEM format")
	}
	s.clients.Store(pool)
	return nil
}
