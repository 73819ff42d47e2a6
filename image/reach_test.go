package image

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
)

func TestReach(t *testing.T) {
	hosts := map[string]string{
		"registry.test": "192.0.2.1", "cdn.test": "192.0.2.2", "private.test": "10.0.0.1", "local.test": "127.0.0.1",
		"metadata.test": "169.254.169.254", "mapped.test": "::ffff:127.0.0.1", "six.test": "::1", "link.test": "fe80::1",
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
		{own: "local.test:5000", asked: "127.0.0.1:5001", refused: true},
		{own: "localhost:5000", asked: "127.0.0.1:5001"},
		{own: "127.0.0.1:5000", asked: "local.test:5001"},
		{own: "local.test:5000", asked: "169.254.169.254", refused: true},
		{own: "192.0.2.1:5000", asked: "127.0.0.1:80", refused: true},
	} {
		err := reach{own: []string{tc.own}, lookup: lookup}.check(&url.URL{Scheme: "https", Host: tc.asked})
		if (err != nil) != tc.refused || err != nil && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s leads to %s: %v", tc.own, tc.asked, err)
		}
	}
}

// TestReachByProxy: what a proxy is asked for is the proxy's to reach, and an error
// of choosing one is told.
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
		reach{own: []string{"registry.test"}, lookup: lookup}.limit(sys)
		if via, err := sys.DockerProxy(&url.URL{Host: "elsewhere.test"}); via != tc.via || !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v", what, via, err)
		}
	}
}

// TestReachOfUnknownRegistry: a registry that registries.conf does not know has itself.
func TestReachOfUnknownRegistry(t *testing.T) {
	named, err := reference.ParseNormalizedNamed("registry.test/x:1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := newReach(&types.SystemContext{SystemRegistriesConfPath: os.DevNull}, named)
	if err != nil || len(r.own) != 1 || r.own[0] != "registry.test" {
		t.Errorf("%v, %v", r.own, err)
	}
	if _, err := newReach(&types.SystemContext{SystemRegistriesConfPath: t.TempDir() + "/none"}, named); err == nil {
		t.Error("no error for a file that is missing")
	}
}

// TestRedirectionIsNotFollowed: a registry that sends a pull to an address of
// the host's link is refused, for a blob and for a token.
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
