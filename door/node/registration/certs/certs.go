// Package certs manages the certificates of a node: its client certificate for the API server, the serving certificate
// of its own API, and the authorities of that API's clients. It requests the client certificate at the first start.
// client-go's certificate manager renews certificates. Keys are never logged.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"

	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// Prefixes of the files of requested certificates, each with its key.
const (
	clientPair  = "node-client"
	servingPair = "node-server"
)

// subject returns the subject of a node's certificates.
func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// store keeps pairs of certificate and key in files, and calls updated for each new pair. Only the newest pair is kept.
type store struct {
	certificate.FileStore
	dir, prefix string
	log         *slog.Logger
	updated     func(*tls.Certificate)
}

func newStore(dir, prefix string, log *slog.Logger, updated func(*tls.Certificate)) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of certificates: %w", err)
	}
	opened, err := trusted.Dir(dir)
	if err != nil {
		return nil, fmt.Errorf("directory of certificates: %w", err)
	}
	defer opened.Close()
	files, err := certificate.NewFileStore(prefix, dir, dir, "", "")
	if err != nil {
		return nil, fmt.Errorf("certificates in %s: %w", dir, err)
	}
	return &store{FileStore: files, dir: dir, prefix: prefix, log: log, updated: updated}, nil
}

// Update implements certificate.Store.
func (s *store) Update(cert, key []byte) (*tls.Certificate, error) {
	pair, err := s.FileStore.Update(cert, key)
	if err != nil {
		return nil, err
	}
	s.log.Info("the node has a new certificate", "of", s.prefix, "until", pair.Leaf.NotAfter)
	if s.updated != nil {
		s.updated(pair)
	}
	if err := s.prune(); err != nil {
		s.log.Warn("removing an earlier certificate failed", "error", err)
	}
	return pair, nil
}

// prune removes older pairs, because their keys are no longer needed.
func (s *store) prune() error {
	current, err := os.Readlink(s.CurrentPath())
	if err != nil {
		return err
	}
	all, err := filepath.Glob(filepath.Join(s.dir, s.prefix+"-[0-9]*.pem"))
	for _, one := range all {
		if filepath.Base(one) != filepath.Base(current) {
			err = errors.Join(err, os.Remove(one))
		}
	}
	return err
}

// current returns the stored pair, or nil.
func (s *store) current() (*tls.Certificate, error) {
	pair, err := s.Current()
	var none *certificate.NoCertKeyError
	if errors.As(err, &none) {
		return nil, nil
	}
	return pair, err
}

// failures counts failed renewals of a certificate.
type failures struct{ atomic.Uint64 }

// Inc implements certificate.Counter.
func (f *failures) Inc() { f.Add(1) }

// expiry returns when a pair expires, or zero for no pair.
func expiry(pair *tls.Certificate) time.Time {
	if pair == nil || pair.Leaf == nil {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

// newManager returns the manager that renews the pairs of a store, with the client that client returns at that time.
func newManager(
	s *store, failed *failures, signer string, template *x509.CertificateRequest,
	client func(*tls.Certificate) (kubernetes.Interface, error),
) (certificate.Manager, error) {
	usages := certificate.DefaultKubeletClientGetUsages
	if s.prefix == servingPair {
		usages = certificate.DefaultKubeletServingGetUsages
	}
	m, err := certificate.NewManager(&certificate.Config{
		Name: s.prefix, ClientsetFn: client, Template: template, SignerName: signer, GetUsages: usages, CertificateStore: s,
		CertificateRenewFailure: failed,
	})
	if err != nil {
		return nil, fmt.Errorf("renew certificates: %w", err)
	}
	return m, nil
}
