package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// isBlob reports whether a request is for the blob d.
func isBlob(r *http.Request, d v1.Hash) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+d.String())
}

// basicAuth admits only user "u" with password "p".
func basicAuth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "u" || password != "p" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no"}]}`, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// firstLayer is the digest of an image's first layer.
func firstLayer(t *testing.T, img v1.Image) v1.Hash {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// TestPullFails: each fault becomes one line with its class, and leaves nothing.
func TestPullFails(t *testing.T) {
	img := imageOf(t, tarOf(t, file("a", strings.Repeat("incompressible? no ", 100000))), tarOf(t, file("b", "second")))
	first := firstLayer(t, img)
	config, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	// spoil answers requests for one blob with answer, once the image is pushed.
	spoil := func(d v1.Hash, answer http.HandlerFunc) func(*atomic.Bool) func(http.Handler) http.Handler {
		return func(on *atomic.Bool) func(http.Handler) http.Handler {
			return func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if on.Load() && isBlob(r, d) {
						answer(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			}
		}
	}
	always := func(wrap func(http.Handler) http.Handler) func(*atomic.Bool) func(http.Handler) http.Handler {
		return func(on *atomic.Bool) func(http.Handler) http.Handler {
			return func(next http.Handler) http.Handler {
				wrapped := wrap(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if on.Load() {
						wrapped.ServeHTTP(w, r)
					} else {
						next.ServeHTTP(w, r)
					}
				})
			}
		}
	}
	// claim changes the first layer's size in the manifest.
	claim := func(size int64) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if isBlob(r, first) {
					t.Errorf("a layer of %d bytes is fetched", size)
				}
				if !strings.HasSuffix(r.URL.Path, "/manifests/1") {
					next.ServeHTTP(w, r)
					return
				}
				original := httptest.NewRecorder()
				next.ServeHTTP(original, r)
				var m v1.Manifest
				if err := json.NewDecoder(original.Body).Decode(&m); err != nil {
					t.Error(err)
					return
				}
				m.Layers[0].Size = size
				w.Header().Set("Content-Type", original.Header().Get("Content-Type"))
				_ = json.NewEncoder(w).Encode(m)
			})
		}
	}
	reply := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	for _, tc := range []struct {
		name string
		wrap func(*atomic.Bool) func(http.Handler) http.Handler
		ref  string
		opts PullOptions
		want error
		says string
	}{
		{name: "unknown tag", ref: "/demo:none", want: ErrNotFound},
		{name: "unknown repository", ref: "/none:1", want: ErrNotFound},
		{name: "bad name", ref: "/UPPER", want: ErrInvalid, says: "UPPER"},
		{name: "no credentials", wrap: always(basicAuth), ref: "/demo:1", want: ErrUnauthorized, says: "bulkhead login 127.0.0.1"},
		{
			name: "wrong credentials",
			wrap: always(basicAuth),
			ref:  "/demo:1",
			opts: PullOptions{Auth: &Auth{Username: "u", Password: "no"}},
			want: ErrUnauthorized,
			says: "bulkhead login",
		},
		{name: "altered blob", wrap: spoil(first, reply("something else")), ref: "/demo:1", want: ErrDigest, says: first.String()},
		{name: "altered configuration", wrap: spoil(config, reply("{}")), ref: "/demo:1", want: ErrDigest, says: config.String()},
		{
			name: "cut connection",
			wrap: spoil(first, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				fmt.Fprint(w, "ten bytes.")
				panic(http.ErrAbortHandler)
			}),
			ref:  "/demo:1",
			want: ErrUnavailable,
			says: first.String(),
		},
		{name: "missing blob", wrap: spoil(first, http.NotFound), ref: "/demo:1", want: ErrUnavailable, says: first.String()},
		{name: "a layer without an end", wrap: always(claim(-1)), ref: "/demo:1", want: ErrInvalid, says: first.String()},
		{name: "a layer larger than any disk", wrap: always(claim(1 << 60)), ref: "/demo:1", want: ErrNoSpace, says: "free"},
		{name: "never", ref: "/demo:1", opts: PullOptions{Policy: PullNever}, want: ErrNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var on atomic.Bool
			var wrap func(http.Handler) http.Handler
			if tc.wrap != nil {
				wrap = tc.wrap(&on)
			}
			host := startRegistry(t, wrap)
			push(t, host+"/demo:1", img)
			on.Store(true)
			s, _ := openStore(t, "run")
			_, err := s.Pull(testContext(t), host+tc.ref, tc.opts)
			if err == nil {
				t.Fatal("no error")
			}
			t.Log(err)
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("want %v", tc.want)
			}
			if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("want one line with %q", tc.says)
			}
			noTemps(t, s)
			if ids, _ := s.ids(); len(ids) > 0 {
				t.Errorf("images %v", ids)
			}
		})
	}
}

// TestPullGone: the registry goes away during a pull.
func TestPullGone(t *testing.T) {
	img := imageOf(t, tarOf(t, file("a", randomText(1<<20))))
	d := firstLayer(t, img)
	var gone atomic.Bool
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if gone.Load() {
				panic(http.ErrAbortHandler)
			}
			if isBlob(r, d) {
				gone.Store(true)
				w.Header().Set("Content-Length", "900000")
				_, _ = w.Write(make([]byte, 100000))
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/demo:1", img)
	s, _ := openStore(t, "run")
	_, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
	t.Log(err)
	if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	noTemps(t, s)
}

// TestPullOnce: concurrent pulls transfer each blob once, and go on if the first caller ends.
func TestPullOnce(t *testing.T) {
	img := imageOf(t, tarOf(t, file("a", randomText(1<<20))))
	d := firstLayer(t, img)
	var served atomic.Int32
	asked, release := make(chan struct{}, 64), make(chan struct{})
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isBlob(r, d) {
				served.Add(1)
				asked <- struct{}{}
				<-release
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/demo:1", img)
	push(t, host+"/demo:2", img)
	s, roots := openStore(t, "run")
	other := reopen(t, roots, "cri") // as another process: only files are shared
	first, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Pull(first, host+"/demo:1", PullOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled caller got %v", err)
		}
	})
	<-asked
	var done atomic.Bool
	for i := range 6 {
		store, tag := s, "1"
		if i%3 == 1 {
			store = other
		}
		if i%3 == 2 {
			tag = "2"
		}
		wg.Go(func() {
			got, err := store.Pull(testContext(t), host+"/demo:"+tag, PullOptions{Progress: func(p Progress) {
				if p.Done {
					done.Store(true)
				}
			}})
			if err != nil || len(got.Names) == 0 {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	for waiting := 0; waiting < 3; { // the first, and two that joined it
		s.flights.mu.Lock()
		waiting = 0
		for _, fl := range s.flights.active {
			if fl.waiting > 1 {
				waiting = fl.waiting
			}
		}
		s.flights.mu.Unlock()
	}
	leave()
	close(release)
	wg.Wait()
	if n := served.Load(); n != 1 {
		t.Errorf("the layer was served %d times", n)
	}
	if !done.Load() {
		t.Error("no progress was reported")
	}
	noTemps(t, s)
}

// TestPullWithOtherCredentials: a caller with other credentials gets nothing from another caller's pull of the same
// image, even while that runs.
func TestPullWithOtherCredentials(t *testing.T) {
	img := imageOf(t, tarOf(t, file("a", randomText(1<<20))))
	d := firstLayer(t, img)
	asked, release := make(chan struct{}, 8), make(chan struct{})
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return basicAuth(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isBlob(r, d) {
				asked <- struct{}{}
				<-release
			}
			next.ServeHTTP(w, r)
		}))
	})
	push(t, host+"/demo:1", img, remote.WithAuth(&authn.Basic{Username: "u", Password: "p"}))
	s, _ := openStore(t, "run")
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{Auth: &Auth{Username: "u", Password: "p"}})
		if err != nil {
			t.Error(err)
		}
	})
	<-asked
	other := filepath.Join(t.TempDir(), "auth.json")
	for name, pull := range map[string]func(context.Context) (Image, error){
		"wrong password": func(ctx context.Context) (Image, error) {
			return s.Pull(ctx, host+"/demo:1", PullOptions{Auth: &Auth{Username: "u", Password: "guess"}})
		},
		"none": func(ctx context.Context) (Image, error) { return s.Pull(ctx, host+"/demo:1", PullOptions{}) },
		"another file of credentials": func(ctx context.Context) (Image, error) {
			getenv := func(name string) string {
				if name == "REGISTRY_AUTH_FILE" {
					return other
				}
				return os.Getenv(name)
			}
			return s.With(getenv).Pull(ctx, host+"/demo:1", PullOptions{})
		},
	} {
		// A caller that joined the first pull would wait for it.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := pull(ctx); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: got %v", name, err)
		}
		cancel()
	}
	close(release)
	wg.Wait()
	noTemps(t, s)
}

// TestLinksAreNotFollowed: the addresses in an image's manifest for its blobs are never contacted, whichever server has
// the manifest.
func TestLinksAreNotFollowed(t *testing.T) {
	img := imageOf(t, tarOf(t, file("a", "body")))
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var victim atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { victim.Add(1) }))
	defer elsewhere.Close()
	m = m.DeepCopy()
	m.Layers[0].URLs, m.Config.URLs = []string{elsewhere.URL + "/layer"}, []string{elsewhere.URL + "/config"}
	linked := linkedImage{img, m}
	host := startRegistry(t, nil)
	push(t, host+"/demo:1", linked)
	dir := t.TempDir()
	if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: linked})); err != nil {
		t.Fatal(err)
	}
	for name, get := range map[string]func(*Store) (Image, error){
		"registry": func(s *Store) (Image, error) { return s.Pull(testContext(t), host+"/demo:1", PullOptions{}) },
		"layout":   func(s *Store) (Image, error) { return s.Load(testContext(t), "oci:"+dir, "demo", PullOptions{}) },
	} {
		s, _ := openStore(t, "run")
		// The blobs lie where the manifest does.
		if got, err := get(s); err != nil || read(t, s, got.ID, "a") != "body" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := victim.Load(); n != 0 {
		t.Errorf("%d requests went to the addresses of the manifest", n)
	}
}

// linkedImage is an image with a changed manifest.
type linkedImage struct {
	v1.Image
	m *v1.Manifest
}

func (l linkedImage) Manifest() (*v1.Manifest, error) { return l.m, nil }
func (l linkedImage) RawManifest() ([]byte, error)    { return json.Marshal(l.m) }
func (l linkedImage) Digest() (v1.Hash, error) {
	raw, err := l.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	h, _, err := v1.SHA256(bytes.NewReader(raw))
	return h, err
}

func (l linkedImage) Size() (int64, error) {
	raw, err := l.RawManifest()
	return int64(len(raw)), err
}
