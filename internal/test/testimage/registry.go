package testimage

import (
	"crypto/subtle"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Server is a registry on loopback, over plain HTTP, that ends with the test. It is safe for concurrent use.
type Server struct {
	// Host is its address, such as 127.0.0.1:4711.
	Host string

	auth authn.Authenticator
	mu   sync.Mutex
	reqs []string
}

// Option changes a registry.
type Option func(*options)

type options struct {
	user, password string
	wrap           []func(http.Handler) http.Handler
}

// BasicAuth makes the registry require this name and password.
func BasicAuth(user, password string) Option {
	return func(o *options) { o.user, o.password = user, password }
}

// Wrap adds a handler in front of the registry's own, to make it fail, stall or lie.
func Wrap(wrap func(http.Handler) http.Handler) Option {
	return func(o *options) { o.wrap = append(o.wrap, wrap) }
}

// Registry starts a registry.
func Registry(t testing.TB, opts ...Option) *Server {
	t.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	s := &Server{auth: authn.Anonymous}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	for _, wrap := range o.wrap {
		handler = wrap(handler)
	}
	if o.user != "" {
		s.auth = &authn.Basic{Username: o.user, Password: o.password}
		handler = demand(o.user, o.password, handler)
	}
	srv := httptest.NewServer(s.record(handler))
	t.Cleanup(func() {
		srv.CloseClientConnections() // Close alone would wait for a stalled one
		srv.Close()
	})
	s.Host = strings.TrimPrefix(srv.URL, "http://")
	return s
}

func demand(user, password string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(u+":"+p), []byte(user+":"+password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.reqs = append(s.reqs, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// Requests returns the requests so far, each as "GET /v2/…", in order. They include Push's.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.reqs...)
}

// Push pushes img to the registry as repository:tag, and returns the whole reference and the image's digest.
func (s *Server) Push(t testing.TB, repository string, img v1.Image) (reference string, digest v1.Hash) {
	t.Helper()
	reference = s.push(t, repository, func(ref name.Reference, auth remote.Option) error { return remote.Write(ref, img, auth) })
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return reference, digest
}

// PushIndex is like Push for images of several platforms.
func (s *Server) PushIndex(t testing.TB, repository string, index v1.ImageIndex) (reference string) {
	t.Helper()
	return s.push(t, repository, func(ref name.Reference, auth remote.Option) error { return remote.WriteIndex(ref, index, auth) })
}

func (s *Server) push(t testing.TB, repository string, write func(name.Reference, remote.Option) error) string {
	t.Helper()
	reference := s.Host + "/" + repository
	ref, err := name.ParseReference(reference, name.Insecure)
	if err == nil {
		err = write(ref, remote.WithAuth(s.auth))
	}
	if err != nil {
		t.Fatalf("push %s: %v", reference, err)
	}
	return reference
}
