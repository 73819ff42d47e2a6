package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	serial int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, serial: 1}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// sign signs a certificate for a public key, valid from an hour ago until ends.
func (a *authority) sign(public any, name pkix.Name, hosts []string, ips []net.IP, ends time.Time) ([]byte, error) {
	a.mu.Lock()
	a.serial++
	serial := a.serial
	a.mu.Unlock()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: name, DNSNames: hosts, IPAddresses: ips,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, public, a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// issue returns a certificate with its key as PEM.
func (a *authority) issue(t *testing.T, name string, ends time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err = a.sign(private.Public(), pkix.Name{CommonName: name}, []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}, ends)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// signer is an API server. decide is called with each new request's number and returns whether to sign, deny or ignore
// it.
type signer struct {
	*fake.Clientset
	mu   sync.Mutex
	made []*certificatesv1.CertificateSigningRequest
}

func newSigner(t *testing.T, a *authority, decide func(n int) string) *signer {
	t.Helper()
	s := &signer{Clientset: fake.NewClientset()}
	s.PrependReactor("create", "certificatesigningrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		csr := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		if csr.Name == "" {
			csr.Name = "csr-" + time.Now().Format("150405.000000000") // the API server generates names as well
		}
		csr.UID = "uid"
		s.mu.Lock()
		s.made = append(s.made, csr.DeepCopy())
		n := len(s.made)
		s.mu.Unlock()
		handle(t, a, csr, decide(n))
		return false, nil, nil // the tracker keeps it
	})
	return s
}

// watches returns a channel that gets an element for each new watch of requests.
func (s *signer) watches() <-chan struct{} {
	begun := make(chan struct{}, 8)
	s.PrependWatchReactor("certificatesigningrequests", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := s.Tracker().Watch(action.GetResource(), action.GetNamespace())
		select {
		case begun <- struct{}{}:
		default:
		}
		return true, w, err
	})
	return begun
}

// requests returns all requests so far.
func (s *signer) requests() []*certificatesv1.CertificateSigningRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*certificatesv1.CertificateSigningRequest(nil), s.made...)
}

// handle signs, denies or ignores a request.
func handle(t *testing.T, a *authority, csr *certificatesv1.CertificateSigningRequest, how string) {
	block, _ := pem.Decode(csr.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Errorf("update of the request: %v", err)
		return
	}
	kind := certificatesv1.CertificateApproved
	switch how {
	case "sign":
		csr.Status.Certificate, err = a.sign(asked.PublicKey, asked.Subject, asked.DNSNames, asked.IPAddresses, time.Now().Add(time.Hour))
		if err != nil {
			t.Error(err)
		}
	case "deny":
		kind = certificatesv1.CertificateDenied
	default:
		return
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: "Test"}}
}

// write replaces a file atomically.
func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	end := time.Now().Add(testdeadline.For(20 * time.Second))
	for !is() {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// noKeys reports an error if a key was logged or its file is readable by others.
func noKeys(t *testing.T, dir string, logged *bytes.Buffer) {
	t.Helper()
	if bytes.Contains(logged.Bytes(), []byte("PRIVATE KEY")) {
		t.Errorf("a key was logged: %s", logged)
	}
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, st.Mode(), err)
		}
	}
}

// served returns the name in a server's certificate.
func served(t *testing.T, s *Serving) string {
	t.Helper()
	pair, err := s.TLS().GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.Subject.CommonName
}
