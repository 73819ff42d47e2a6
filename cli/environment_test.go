package cli

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// TestEnvironmentOfEachCommand: a pull uses the proxies, credentials and registries of its command, not of the
// command that started the engine.
func TestEnvironmentOfEachCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the programs; make test runs it in its second pass")
	}
	reg := testimage.Registry(t, testimage.BasicAuth("ann", "secret"))
	reg.Push(t, "demo:1", testimage.BusyboxImage(t))
	const name = "registry.test/demo:1"
	proxy := proxyTo(t, reg.Host, "user:geheim")
	u := newUser(t, nil, noForks)
	u.shareTemplates()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(u.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty := write("empty.conf", "")
	plain := write("plain.conf", `unqualified-search-registries = ["registry.test"]
[[registry]]
location = "registry.test"
insecure = true
`)
	bare := u.env
	first := append(
		slices.Clone(bare),
		"CONTAINERS_REGISTRIES_CONF="+empty,
		"HTTP_PROXY=http://127.0.0.1:1",
		"HTTPS_PROXY=http://127.0.0.1:1",
		"REGISTRY_AUTH_FILE="+u.dir+"/none.json",
	)
	proxied := append(
		slices.Clone(bare),
		"CONTAINERS_REGISTRIES_CONF="+plain,
		"HTTP_PROXY="+proxy,
		"https_proxy="+proxy,
		"REGISTRY_AUTH_FILE="+u.dir+"/auth.json",
	)

	u.env = first // starts the engine
	if _, stderr, code := u.run("", "image", "pull", "-q", name); code != 1 || !strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("a proxy that is not there: exit code %d, %q", code, stderr)
	}
	u.env = proxied
	if _, stderr, code := u.run("", "image", "pull", "-q", name); code != 1 || !strings.Contains(stderr, "refused access") {
		t.Errorf("by the proxy, without credentials: exit code %d, %q", code, stderr)
	}
	u.run("secret", "login", "-u", "ann", "--password-stdin", "registry.test")
	if out, stderr, code := u.run(manifest("demo:1", "['true']", ""), "run", "-q", "-"); code != 0 {
		t.Errorf("a pod by the proxy, its image by a short name: exit code %d, %q %q", code, out, stderr)
	}
	u.must("", "image", "inspect", "demo:1")
	u.env = bare
	if _, _, code := u.run("", "image", "inspect", "demo:1"); code == 0 {
		t.Error("a short name of one command is known to another")
	}
	u.hidden(t, "geheim")
	u.must("", "rm", "--all")
	u.must("", "image", "rm", name)
}

// proxyTo serves HTTP as a proxy with a password, and sends requests for registry.test to host.
func proxyTo(t *testing.T, host, password string) (address string) {
	t.Helper()
	back := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	user, secret, _ := strings.Cut(password, ":")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		switch gotUser, gotSecret, _ := asked.BasicAuth(); {
		case gotUser != user || gotSecret != secret:
			w.WriteHeader(http.StatusProxyAuthRequired)
		case r.Method == http.MethodConnect || r.URL.Hostname() != "registry.test":
			w.WriteHeader(http.StatusBadGateway)
		default:
			back.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return strings.Replace(srv.URL, "//", "//"+password+"@", 1)
}

// hidden fails if a secret is in the stored files of pods or of the engine.
func (u *user) hidden(t *testing.T, secret string) {
	t.Helper()
	for _, pattern := range []string{"data/pods/*/*", "data/pods/*/*/*", "state/run/*", "state/run/*/*", "state/run/*/*/*"} {
		paths, err := filepath.Glob(filepath.Join(u.dir, pattern))
		if err != nil {
			t.Error(err)
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() || info.Size() > 16<<20 { // a disk of a VM
				continue
			}
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), secret) {
				t.Errorf("%s has the password", path)
			}
		}
	}
}
