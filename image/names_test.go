package image

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.podman.io/image/v5/pkg/sysregistriesv2"
)

// TestNames: a name without a registry is searched in the registries of registries.conf, or at docker.io without any.
// For a loaded image it is a local name.
func TestNames(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, tc := range []struct {
		conf, name, pull, load string
	}{
		{name: "busybox", pull: "docker.io/library/busybox:latest", load: "localhost/busybox:latest"},
		{name: "a/b:1", pull: "docker.io/a/b:1", load: "localhost/a/b:1"},
		{name: "reg.test/b", pull: "reg.test/b:latest", load: "reg.test/b:latest"},
		{name: "reg:80/b", pull: "reg:80/b:latest", load: "reg:80/b:latest"},
		{name: "localhost/b", pull: "localhost/b:latest", load: "localhost/b:latest"},
		{name: "reg.test/b:1@" + digest, pull: "reg.test/b@" + digest, load: "reg.test/b@" + digest},
		{name: "UPPER", load: "", pull: ""},
		{name: "reg.test/UPPER", load: "", pull: ""},
		{
			conf: `unqualified-search-registries = ["one.test", "two.test"]`, name: "app:1",
			pull: "one.test/app:1 two.test/app:1", load: "localhost/app:1",
		},
		{conf: `unqualified-search-registries = ["one.test"]`, name: "UPPER"},
		{conf: `unqualified-search-registries = [`, name: "app", load: "localhost/app:latest"},
	} {
		path := filepath.Join(t.TempDir(), "registries.conf")
		if err := os.WriteFile(path, []byte(tc.conf), 0o600); err != nil {
			t.Fatal(err)
		}
		sysregistriesv2.InvalidateCache()
		t.Cleanup(sysregistriesv2.InvalidateCache)
		env := Getenv(func(name string) string {
			if name == "CONTAINERS_REGISTRIES_CONF" {
				return path
			}
			return ""
		})
		pull, pullErr := env.pullNames(tc.name)
		load, loadErr := loadName(tc.name)
		if fmt.Sprint(pull) != "["+tc.pull+"]" || (pullErr != nil) != (tc.pull == "") {
			t.Errorf("%s is pulled as %v, %v, want %s", tc.name, pull, pullErr, tc.pull)
		}
		if fmt.Sprint(load) != "["+tc.load+"]" || (loadErr != nil) != (tc.load == "") {
			t.Errorf("%s is loaded as %v, %v, want %s", tc.name, load, loadErr, tc.load)
		}
	}
}

// TestPullPolicy: IfNotPresent contacts the registry only for missing images, Never does not, and Always does.
func TestPullPolicy(t *testing.T) {
	var asked atomic.Int32
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/demo:1", imageOf(t, tarOf(t, file("f", "x"))))
	s, _ := openStore(t, "run")
	for _, tc := range []struct {
		name   string
		policy PullPolicy
		want   error
		asks   bool
	}{
		{name: host + "/demo:1", policy: PullNever, want: ErrNotFound},
		{name: host + "/demo:1", policy: PullMissing, asks: true},
		{name: host + "/demo:1", policy: PullMissing},
		{name: host + "/demo:1", policy: PullNever},
		{name: host + "/demo:1", policy: PullAlways, asks: true},
		{name: host + "/demo:1", asks: true},
		{name: host + "/none:1", policy: PullMissing, want: ErrNotFound, asks: true},
		{name: host + "/UPPER", policy: PullMissing, want: ErrInvalid},
	} {
		asked.Store(0)
		img, err := s.Pull(testContext(t), tc.name, PullOptions{Policy: tc.policy})
		if !errors.Is(err, tc.want) || err == nil && len(img.Names) != 1 {
			t.Errorf("%s, %q: %v, %v", tc.name, tc.policy, img.Names, err)
		}
		if err != nil && tc.asks && strings.Count(err.Error(), tc.name) != 1 {
			t.Errorf("%s, %q: %v", tc.name, tc.policy, err)
		}
		if (asked.Load() > 0) != tc.asks {
			t.Errorf("%s, %q: the registry was asked %d times", tc.name, tc.policy, asked.Load())
		}
	}
}
