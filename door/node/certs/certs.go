// Package certs keeps the certificates of a node: the one that it is a client of the API server by, which it asks
// for at its first start and renews, the one that its own API is served by, and the authorities of that API's
// clients. Requests are made and renewed by client-go's certificate manager. No key is logged.
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

// The files of what was asked for, each certificate with its key, begin with these.
const (
	clientPair  = "node-client"
	servingPair = "node-server"
)

// subject is whose a node's certificates are.
func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// store keeps pairs of certificate and key in files, and tells of each new one. Only the newest pair stays.
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

// prune removes the pairs before the current one: their keys are of use to nobody who should have them.
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

// current is the pair of before, nil for none.
func (s *store) current() (*tls.Certificate, error) {
	pair, err := s.Current()
	var none *certificate.NoCertKeyError
	if errors.As(err, &none) {
		return nil, nil
	}
	return pair, err
}

// failures counts how often a certificate could not be renewed.
type failures struct{ atomic.Uint64 }

// Inc implements certificate.Counter.
func (f *failures) Inc() { f.Add(1) }

// expiry is when a pair expires; zero is that there is none.
func expiry(pair *tls.Certificate) time.Time {
	if pair == nil || pair.Leaf == nil {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

// manage makes the manager that renews the pairs of a store, by whatever client serves at that moment.
func manage(
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
