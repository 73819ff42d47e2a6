package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine/enginetest"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/testfs"
	"github.com/bulkhead-project/bulkhead/oci"
)

// Profiles are read from their directory and from nowhere else.
func TestSeccompProfiles(t *testing.T) {
	roots := enginetest.Roots(t)
	s := fakeService(t, enginetest.New(), testOptions(t, roots))
	dir := roots.Seccomp()
	const good = `{"defaultAction": "SCMP_ACT_LOG"}`
	for name, text := range map[string]string{
		"good.json":       good,
		"sub/good.json":   good,
		"bad.json":        `{}`,
		"large.json":      good + strings.Repeat(" ", oci.MaxProfile),
		"../outside.json": good,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"link.json":     "../outside.json",
		"absolute.json": "/etc/passwd",
		"inner.json":    "sub/good.json",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for ref, want := range map[string]bool{
		"good.json": true, filepath.Join(dir, "good.json"): true, filepath.Join(dir, "sub", "good.json"): true, "inner.json": true,
		"": false, "none.json": false, "sub": false, "bad.json": false, "large.json": false, "link.json": false, "absolute.json": false,
		"../outside.json": false, filepath.Join(dir, "..", "outside.json"): false, "/etc/passwd": false, "sub/../../outside.json": false,
	} {
		got, err := s.seccomp(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: ref})
		if (err == nil) != want || want != (got != nil) {
			t.Errorf("%q: %v, %v", ref, got, err)
		}
	}
	if got, err := s.seccomp(&runtimeapi.SecurityProfile{LocalhostRef: "/etc/passwd"}); got != nil || err != nil {
		t.Errorf("of another type: %v, %v", got, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	localhost := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "good.json"}
	if _, err := s.seccomp(localhost); failure.Code(err) != codes.InvalidArgument {
		t.Errorf("without the directory: %v", err)
	}
}

func TestHostsOf(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hosts")
	if err := os.WriteFile(file, []byte("127.0.0.1\tlocalhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mounts := func(at, from string) *runtimeapi.ContainerConfig {
		return &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{ContainerPath: at, HostPath: from}}}
	}
	outside := filepath.Join(t.TempDir(), "hosts")
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(outside, []byte("secret"), 0o644), os.Symlink(outside, link)); err != nil {
		t.Fatal(err)
	}
	o := testOptions(t, enginetest.Roots(t))
	o.HostPaths = []string{filepath.Join(dir, "none"), dir}
	s := fakeService(t, enginetest.New(), o)
	hostsOf := s.hostsOf
	if got, err := hostsOf(mounts("/etc/hosts", file)); err != nil || got != "127.0.0.1\tlocalhost\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := hostsOf(mounts("/etc/other", file)); err != nil || got != "" {
		t.Errorf("another file: %q, %v", got, err)
	}
	for name, from := range map[string]string{
		"nothing": filepath.Join(dir, "none"),
		"a link":  link,
	} {
		if got, err := hostsOf(mounts("/etc/hosts", from)); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	// A file of the host like any other is mounted, and not read here.
	for _, from := range []string{dir, "/dev/zero", outside, dir + "/../" + filepath.Base(filepath.Dir(outside)) + "/hosts"} {
		if got, err := hostsOf(mounts("/etc/hosts", from)); err != nil || got != "" {
			t.Errorf("%s: %q, %v", from, got, err)
		}
	}
}

// TestBlockNode: what is no block device is none, and a file system that does not answer fails the
// call in time.
func TestBlockNode(t *testing.T) {
	dir := t.TempDir()
	silent := testfs.Silent(t, filepath.Join(dir, "dead"))
	for _, path := range []string{dir, "/dev/null", filepath.Join(dir, "none"), "relative"} {
		if _, ok, err := blockNode(t.Context(), path); ok || err != nil {
			t.Errorf("%s: %v, %v", path, ok, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, ok, err := blockNode(ctx, filepath.Join(silent.Dir, "x")); ok || failure.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, %v", ok, err)
	}
}
