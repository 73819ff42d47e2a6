package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// TestBadRegistry: registries refuse, vanish, or do not speak TLS.
func TestBadRegistry(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the programs; make test runs it in its second pass")
	}
	closed := testimage.Registry(t, testimage.BasicAuth("ann", "secret"))
	var serving atomic.Bool
	serving.Store(true)
	gone := testimage.Registry(t, testimage.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/sha256") && r.Method == http.MethodGet && !serving.Load() {
				cutOff{w}.serve(next, r)
			}
			next.ServeHTTP(w, r)
		})
	}))
	secret, _ := closed.Push(t, "secret:1", testimage.BusyboxImage(t))
	half, _ := gone.Push(t, "half:1", large(t))
	serving.Store(false)

	u := newUser(t, nil, noForks)
	u.shareTemplates()
	conf := filepath.Join(u.dir, "registries.conf")
	text := ""
	for _, host := range []string{closed.Host, gone.Host} {
		text += fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", host)
	}
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	u.env = append(u.env, "CONTAINERS_REGISTRIES_CONF="+conf, "REGISTRY_AUTH_FILE="+u.dir+"/auth.json")
	login := []string{"login", "-u", "ann", "--password-stdin", closed.Host}
	for _, tc := range []badInput{
		{
			name: "no credentials",
			args: []string{"image", "pull", "--quiet", secret},
			code: 1,
			want: []string{"refused access", "bulkhead login " + closed.Host},
		},
		{
			name:  "no credentials for a pod",
			stdin: manifest(secret, "['true']", ""),
			code:  125,
			want:  []string{"refused access", "bulkhead login " + closed.Host},
		},
		{name: "wrong credentials", stdin: "wrong", args: login, code: 1, want: []string{"refused the user name or the password"}},
		{
			name: "no such image",
			args: []string{"image", "pull", "--quiet", gone.Host + "/nosuch:1"},
			code: 1,
			want: []string{"image not found", "check its name and tag"},
		},
		{name: "gone in mid-pull", args: []string{"image", "pull", "--quiet", half}, code: 1, want: []string{half, "registry unavailable"}},
		{name: "gone in mid-pull for a pod", stdin: manifest(half, "['true']", ""), code: 125, want: []string{half, "registry unavailable"}},
		{
			name: "no server",
			args: []string{"image", "pull", "--quiet", "127.0.0.1:1/x:1"},
			code: 1,
			want: []string{"registry unavailable", "connection refused"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, u) })
	}
	if out, stderr, code := u.run("secret\n", login...); code != 0 || out != "Login succeeded\n" {
		t.Errorf("login: exit code %d, %q %q", code, out, stderr)
	}
	u.must("", "image", "pull", "--quiet", secret)
	if out := u.must("", "image", "ls"); !strings.Contains(out, closed.Host+"/secret:1") {
		t.Errorf("image ls: %s", out)
	}
}

// cutOff serves half of an answer and then closes the connection.
type cutOff struct{ http.ResponseWriter }

func (c cutOff) serve(next http.Handler, r *http.Request) {
	next.ServeHTTP(&halfWriter{ResponseWriter: c.ResponseWriter, left: 1 << 20}, r)
	panic(http.ErrAbortHandler)
}

type halfWriter struct {
	http.ResponseWriter
	left int
}

func (h *halfWriter) Write(b []byte) (int, error) {
	if len(b) > h.left {
		_, _ = h.ResponseWriter.Write(b[:h.left])
		_ = http.NewResponseController(h.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	h.left -= len(b)
	return h.ResponseWriter.Write(b)
}

// large returns an image of some MB that do not compress.
func large(t *testing.T) v1.Image {
	t.Helper()
	img, err := random.Image(8<<20, 2)
	if err != nil {
		t.Fatal(err)
	}
	return img
}
