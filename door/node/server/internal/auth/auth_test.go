package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// reviewer is an API server that accepts the token "good" for the user alice. She may get metrics and create proxy.
type reviewer struct {
	*fake.Clientset
	down   bool
	asked  int
	access *authorizationv1.SubjectAccessReviewSpec
}

func newReviewer() *reviewer {
	r := &reviewer{Clientset: fake.NewClientset()}
	r.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r.asked++
		got := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if got.Spec.Token == "good" {
			got.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "alice"}}
		}
		if r.down {
			return true, nil, errors.New("down")
		}
		return true, got, nil
	})
	r.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r.asked++
		got := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		r.access = &got.Spec
		at := got.Spec.ResourceAttributes
		got.Status.Allowed = got.Spec.User != "mallory" && at.Resource == "nodes" && at.Name == "node" &&
			(at.Verb == "get" && at.Subresource == "metrics" || at.Verb == "create" && at.Subresource == "proxy")
		return true, got, nil
	})
	return r
}

// TestGuard checks that unknown users get 401 and unauthorised users 403, that streams need create whatever the method
// is, and that answers are cached. While the API server is down, no request passes.
func TestGuard(t *testing.T) {
	r := newReviewer()
	h := New(r, "node", func() *x509.CertPool { return nil })
	handler := h.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		slog.New(slog.DiscardHandler))
	ask := func(method, path, token string) int {
		req := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if closes := w.Header().Get("Connection") == "close"; closes != (w.Code != http.StatusTeapot) {
			t.Errorf("%s %s with %q: %d, closes: %t", method, path, token, w.Code, closes)
		}
		return w.Code
	}
	for _, tt := range []struct {
		method, path, token string
		code                int
	}{
		{"GET", "/metrics", "", http.StatusUnauthorized},
		{"GET", "/metrics", "bad", http.StatusUnauthorized},
		{"GET", "/metrics/resource", "good", http.StatusTeapot},
		{"GET", "/metricsx", "good", http.StatusForbidden},
		{"POST", "/metrics", "good", http.StatusForbidden},
		{"GET", "/containerLogs/a/b/c", "good", http.StatusForbidden}, // needs get of proxy
		{"GET", "/exec/a/b/c", "good", http.StatusTeapot},
		{"POST", "/exec/a/b/c", "good", http.StatusTeapot},
		{"GET", "/attach/a/b/c", "good", http.StatusTeapot},
		{"GET", "/portForward/a/b", "good", http.StatusTeapot},
		{"POST", "/checkpoint/a/b/c", "good", http.StatusForbidden}, // needs checkpoint, not proxy
		{"GET", "/metrics/cadvisor", "good", http.StatusTeapot},
		{"GET", "/pods", "good", http.StatusForbidden},
		{"GET", "/healthz", "", http.StatusUnauthorized},
	} {
		if code := ask(tt.method, tt.path, tt.token); code != tt.code {
			t.Errorf("%s %s with %q: %d, want %d", tt.method, tt.path, tt.token, code, tt.code)
		}
	}
	for header, known := range map[string]bool{
		"bearer good": true, "BEARER  good": true, "Bearer": false, "Bearer ": false, "Basic good": false, "Bearergood": false, "good": false,
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		req.Header.Set("Authorization", header)
		if u, err := h.Authenticate(req); known != (err == nil) || known && u.Name != "alice" {
			t.Errorf("%q: %v, %v", header, u, err)
		}
	}
	before := r.asked
	if ask("GET", "/metrics/resource", "good") != http.StatusTeapot || r.asked != before {
		t.Errorf("%d requests for cached answers", r.asked-before)
	}
	r.down = true
	if code := ask("GET", "/metrics", "another"); code != http.StatusInternalServerError {
		t.Errorf("while the API server is down: %d", code)
	}
}

// TestBusy checks that a request during too many reviews is refused at once, and that a cached one still passes.
func TestBusy(t *testing.T) {
	h := New(newReviewer(), "node", func() *x509.CertPool { return nil })
	handler := h.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		slog.New(slog.DiscardHandler))
	ask := func(path, token string, want int) {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		req.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code != want {
			t.Errorf("%s with %s: %d, want %d", path, token, w.Code, want)
		}
	}
	ask("/metrics", "good", http.StatusTeapot)
	ask("/metrics", "bad", http.StatusUnauthorized)
	for range maxReviews {
		h.reviews <- struct{}{}
		h.access <- struct{}{}
	}
	ask("/metrics", "good", http.StatusTeapot)
	ask("/metrics", "bad", http.StatusUnauthorized)
	ask("/metrics", "another", http.StatusTooManyRequests)
	ask("/stats", "good", http.StatusTooManyRequests)
	<-h.reviews
	<-h.access
	for range 3 { // each review frees its slot
		ask("/metrics", rand.Text(), http.StatusUnauthorized)
	}
	ask("/stats", "good", http.StatusForbidden)
	ask("/logs", "good", http.StatusForbidden)
}

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) sign(t *testing.T, name string, usage x509.ExtKeyUsage, ends time.Time) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{"ops"}}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: ends, ExtKeyUsage: []x509.ExtKeyUsage{usage}, IsCA: a.cert == nil, BasicConstraintsValid: true,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer, a.key = template, key, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestCertificates checks that a certificate is accepted only if the cluster's authority has signed it for clients and
// it has not expired.
func TestCertificates(t *testing.T) {
	later := time.Now().Add(time.Hour)
	ours, theirs := &authority{}, &authority{}
	ours.cert = ours.sign(t, "ca", x509.ExtKeyUsageAny, later)
	theirs.cert = theirs.sign(t, "ca", x509.ExtKeyUsageAny, later)
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	h := New(newReviewer(), "node", func() *x509.CertPool { return pool })
	for name, tt := range map[string]struct {
		cert *x509.Certificate
		user string
	}{
		"client":          {ours.sign(t, "bob", x509.ExtKeyUsageClientAuth, later), "bob"},
		"server":          {ours.sign(t, "bob", x509.ExtKeyUsageServerAuth, later), ""},
		"expired":         {ours.sign(t, "bob", x509.ExtKeyUsageClientAuth, time.Now().Add(-time.Minute)), ""},
		"other authority": {theirs.sign(t, "bob", x509.ExtKeyUsageClientAuth, later), ""},
		"no name":         {ours.sign(t, "", x509.ExtKeyUsageClientAuth, later), ""},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{tt.cert}}
		u, err := h.Authenticate(req)
		if tt.user == "" && !errors.Is(err, ErrUnknown) || tt.user != "" && (err != nil || u.Name != tt.user || u.Groups[0] != "ops") {
			t.Errorf("%s: %v, %v", name, u, err)
		}
	}
	if ok, err := h.Authorize(context.Background(), &User{Name: "mallory"}, "create", "proxy"); ok || err != nil {
		t.Errorf("mallory: %v, %v", ok, err)
	}
}
