package image

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.podman.io/image/v5/types"
)

func TestReach(t *testing.T) {
	hosts := map[string]string{
		"registry.test": "192.0.2.1", "cdn.test": "192.0.2.2", "private.test": "10.0.0.1", "local.test": "127.0.0.1",
		"mine.test": "10.1.2.3", "metadata.test": "169.254.169.254", "mapped.test": "::ffff:127.0.0.1", "six.test": "::1", "link.test": "fe80::1",
	}
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		if addr, err := netip.ParseAddr(host); err == nil {
			return []netip.Addr{addr}, nil
		}
		if text := hosts[host]; text != "" {
			return []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr(text)}, nil
		}
		return nil, &net.DNSError{Name: host, IsNotFound: true}
	}
	mine := func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::7")}
	}
	for _, tc := range []struct {
		own, asked string
		refused    bool
	}{
		{own: "registry.test", asked: "registry.test"},
		{own: "registry.test", asked: "cdn.test"},
		{own: "registry.test", asked: "private.test:444"},
		{own: "registry.test", asked: "unknown.test"},
		{own: "127.0.0.1:5000", asked: "127.0.0.1:5000"},
		{own: "registry.test", asked: "127.0.0.1:80", refused: true},
		{own: "registry.test", asked: "[::1]:80", refused: true},
		{own: "registry.test", asked: "local.test", refused: true},
		{own: "registry.test", asked: "six.test", refused: true},
		{own: "registry.test", asked: "mapped.test", refused: true},
		{own: "registry.test", asked: "0.0.0.0", refused: true},
		{own: "registry.test", asked: "169.254.169.254", refused: true},
		{own: "registry.test", asked: "metadata.test", refused: true},
		{own: "registry.test", asked: "link.test", refused: true},
		{own: "registry.test", asked: "10.1.2.3:80", refused: true},
		{own: "registry.test", asked: "[2001:db8::7]:80", refused: true},
		{own: "registry.test", asked: "mine.test", refused: true},
		{own: "10.1.2.3:5000", asked: "mine.test:5001"},
		{own: "10.1.2.3:5000", asked: "169.254.169.254", refused: true},
		{own: "mine.test:5000", asked: "mine.test:5000"},
		{own: "mine.test:5000", asked: "mine.test:5001", refused: true},
		{own: "registry.test", asked: "[fd00:ec2::254]", refused: true},
		{own: "127.0.0.1:5000", asked: "[fd00:ec2::254]", refused: true},
		{own: "registry.test", asked: "100.100.100.200", refused: true},
		{own: "registry.test", asked: "100.100.100.201"},
		{own: "registry.test", asked: "168.63.129.16", refused: true},
		{own: "registry.test", asked: "[64:ff9b::169.254.169.254]", refused: true},
		{own: "registry.test", asked: "[64:ff9b::127.0.0.1]", refused: true},
		{own: "registry.test", asked: "[64:ff9b::192.0.2.2]"},
		{own: "registry.test", asked: "[64:ff9b:1::10.1.2.3]", refused: true},
		{own: "registry.test", asked: "[::127.0.0.1]", refused: true},
		{own: "registry.test", asked: "[::ffff:10.1.2.3]", refused: true},
		{own: "registry.test", asked: "[::ffff:0:169.254.169.254]", refused: true},
		{own: "registry.test", asked: "[2002:a9fe:a9fe::1]", refused: true},
		{own: "registry.test", asked: "[2001:0:1::5601:5601]", refused: true},
		{own: "registry.test", asked: "[2001:db8::1]"},
		{own: "registry.test", asked: "224.0.0.1", refused: true},
		{own: "local.test:5000", asked: "127.0.0.1:5001", refused: true},
		{own: "localhost:5000", asked: "127.0.0.1:5001"},
		{own: "127.0.0.1:5000", asked: "local.test:5001"},
		{own: "local.test:5000", asked: "169.254.169.254", refused: true},
		{own: "192.0.2.1:5000", asked: "127.0.0.1:80", refused: true},
	} {
		err := reach{own: []string{tc.own}, lookup: lookup, mine: mine}.check(&url.URL{Scheme: "https", Host: tc.asked})
		if (err != nil) != tc.refused || err != nil && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s leads to %s: %v", tc.own, tc.asked, err)
		}
	}
}

// TestPlainReach: only an insecure registry, or one with an insecure mirror, is contacted by plain HTTP, or may refer
// to it.
func TestPlainReach(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "registries.conf")
	const text = `
[[registry]]
location = "insecure.test"
insecure = true
[[registry]]
location = "mirrored.test"
[[registry.mirror]]
location = "mirror.test"
insecure = true
`
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		insecure bool // as --tls-verify=false
		plain    bool
	}{
		{name: "registry.test/x:1"},
		{name: "registry.test"},
		{name: "registry.test/x:1", insecure: true, plain: true},
		{name: "registry.test", insecure: true, plain: true},
		{name: "insecure.test/x:1", plain: true},
		{name: "insecure.test", plain: true},
		{name: "mirrored.test/x:1", plain: true},
		{name: "mirrored.test"},
	} {
		sys := &types.SystemContext{SystemRegistriesConfPath: conf}
		setInsecure(sys, tc.insecure)
		r, err := newReach(sys, tc.name)
		if err != nil {
			t.Fatal(err)
		}
		r.lookup = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		}
		for _, host := range []string{r.own[0], "tokens.test"} {
			if err := r.check(&url.URL{Scheme: "https", Host: host}); err != nil {
				t.Errorf("%s asks %s by HTTPS: %v", tc.name, host, err)
			}
			err := r.check(&url.URL{Scheme: "http", Host: host})
			if (err == nil) != tc.plain || err != nil && !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s asks %s by plain HTTP: %v", tc.name, host, err)
			}
		}
	}
}

// TestReachByProxy: requests to a proxy are not checked, and an error of choosing a proxy is returned.
func TestReachByProxy(t *testing.T) {
	broken := errors.New("broken")
	lookup := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	for what, tc := range map[string]struct {
		via  *url.URL
		err  error
		want error
	}{
		"a proxy": {via: &url.URL{Host: "proxy.test"}}, "none": {want: ErrUnavailable}, "an error": {err: broken, want: broken},
	} {
		sys := &types.SystemContext{DockerProxy: func(*url.URL) (*url.URL, error) { return tc.via, tc.err }}
		reach{own: []string{"registry.test"}, lookup: lookup, mine: interfaceAddresses}.limit(sys)
		if via, err := sys.DockerProxy(&url.URL{Host: "elsewhere.test"}); via != tc.via || !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v", what, via, err)
		}
	}
}

// TestReachOfUnknownRegistry: a registry that is not in registries.conf may be contacted itself.
func TestReachOfUnknownRegistry(t *testing.T) {
	const named = "registry.test/x:1"
	r, err := newReach(&types.SystemContext{SystemRegistriesConfPath: os.DevNull}, named)
	if err != nil || len(r.own) != 1 || r.own[0] != "registry.test" {
		t.Errorf("%v, %v", r.own, err)
	}
	if _, err := newReach(&types.SystemContext{SystemRegistriesConfPath: t.TempDir() + "/none"}, named); err == nil {
		t.Error("no error for a file that is missing")
	}
}

// TestLoginAvoidsHostAddresses: a registry cannot send the password to an address of the host or its link.
func TestLoginAvoidsHostAddresses(t *testing.T) {
	asked := false
	victim := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer victim.Close()
	sys := &types.SystemContext{DockerProxy: func(*url.URL) (*url.URL, error) { return nil, nil }}
	reachOf(false, "registry.test").limit(sys)
	if _, err := sys.DockerProxy(&url.URL{Scheme: "http", Host: victim.Listener.Addr().String()}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a registry elsewhere that leads to loopback: %v", err)
	}
	host := startRegistry(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://169.254.169.254/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	env := func(name string) string {
		return map[string]string{"REGISTRY_AUTH_FILE": filepath.Join(t.TempDir(), "auth.json")}[name]
	}
	err := Login(testContext(t), env, host, "me", "secret", false)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "an address of this host") || asked {
		t.Errorf("log in where tokens come from 169.254.169.254: %v", err)
	}
}

// TestRedirectionIsNotFollowed: a registry that redirects a pull to an address of the host's link is refused, for a
// blob and for a token.
func TestRedirectionIsNotFollowed(t *testing.T) {
	img := imageOf(t, tarOf(t, file("a", "body")))
	d := firstLayer(t, img)
	const target = "http://169.254.169.254/latest/meta-data"
	var on atomic.Bool
	for what, answer := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"blob": func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r, d) {
				http.Redirect(w, r, target, http.StatusTemporaryRedirect)
				return true
			}
			return false
		},
		"token": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+target+`",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		},
	} {
		on.Store(false)
		host := startRegistry(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !on.Load() || !answer(w, r) {
					next.ServeHTTP(w, r)
				}
			})
		})
		push(t, host+"/demo:1", img)
		on.Store(true)
		s, _ := openStore(t, "run")
		_, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "address of this host") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", what, err)
		}
		noTemps(t, s)
	}
}
