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
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/cri/spec"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// TestSeccompProfiles: profiles are read only from their directory.
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
		got, err := seccomp(s.roots.Seccomp(), &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: ref})
		if (err == nil) != want || want != (got != nil) {
			t.Errorf("%q: %v, %v", ref, got, err)
		}
	}
	if got, err := seccomp(s.roots.Seccomp(), &runtimeapi.SecurityProfile{LocalhostRef: "/etc/passwd"}); got != nil || err != nil {
		t.Errorf("of another type: %v, %v", got, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	localhost := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "good.json"}
	if _, err := seccomp(s.roots.Seccomp(), localhost); grpccode.Of(err) != codes.InvalidArgument {
		t.Errorf("without the directory: %v", err)
	}
}

// TestOwnFiles: a client's own files are distinguished from volumes at the same destinations by their place on the
// host.
func TestOwnFiles(t *testing.T) {
	dir := t.TempDir()
	outside, link := filepath.Join(t.TempDir(), "hosts"), filepath.Join(dir, "link")
	o := testOptions(t, enginetest.Roots(t))
	o.HostPaths = []string{filepath.Join(dir, "none"), dir}
	s := fakeService(t, enginetest.New(), o)
	s.volumes = layout.Dirs{Kubelet: dir, Own: filepath.Join(dir, "own")}
	own, pod := filepath.Join(dir, "pods/u/etc-hosts"), filepath.Join(dir, "pods/u")
	if err := errors.Join(os.MkdirAll(pod, 0o755), os.WriteFile(own, []byte("127.0.0.1\tlocalhost\n"), 0o644),
		os.WriteFile(outside, []byte("secret"), 0o644), os.Symlink(outside, link)); err != nil {
		t.Fatal(err)
	}
	take := func(at, from string) (ownFiles, *runtimeapi.ContainerConfig, error) {
		config := &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{ContainerPath: at, HostPath: from, Readonly: true}}}
		got, err := s.takeOwnFiles(config)
		return got, config, err
	}
	got, config, err := take("/etc//hosts", own)
	if want := (spec.Hosts{Text: "127.0.0.1\tlocalhost\n", ReadOnly: true}); err != nil || got.hosts != want || len(config.Mounts) != 0 {
		t.Errorf("%+v, %v, %v", got.hosts, config.Mounts, err)
	}
	got, config, err = take("/dev/termination-log", pod+"/containers/c/1")
	if err != nil || got.termination == nil || len(config.Mounts) != 0 || len(got.mounts) != 1 {
		t.Errorf("%+v, %v, %v", got, config.Mounts, err)
	}
	for name, from := range map[string]string{"nothing": filepath.Join(dir, "none"), "a link": link} {
		if got, _, err := take("/etc/hosts", from); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// Any other file or volume stays a mount and is not read.
	for _, at := range []string{"/etc/hosts", "/dev/termination-log", "/etc/hostname", "/etc/resolv.conf"} {
		for _, from := range []string{
			"", dir, "/dev/zero", outside, dir + "/../" + filepath.Base(filepath.Dir(outside)) + "/hosts",
			pod + "/volumes/kubernetes.io~configmap/v/hosts", pod + "/volumes/kubernetes.io~csi/v/mount", pod + "/volume-subpaths/v/c/0",
			pod + "/volumeDevices/x", dir + "/own/u/" + layout.HostPath + "/v", dir + "/own/u/" + layout.Projected + "/v/hosts",
		} {
			got, config, err := take(at, from)
			if err != nil || got.hosts.Text != "" || got.termination != nil || len(config.Mounts) != 1 {
				t.Errorf("%s at %s: %+v, %v", from, at, got, err)
			}
		}
	}
}

// TestBlockNode: only block devices have a node, and a file system that does not answer fails the call in time.
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
	if _, ok, err := blockNode(ctx, filepath.Join(silent.Dir, "x")); ok || grpccode.Of(err) != codes.DeadlineExceeded {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestImageUser: a number that only some programs accept counts as a name.
func TestImageUser(t *testing.T) {
	for user, want := range map[string]*runtimeapi.Image{
		"":             {},
		"www:web":      {Username: "www"},
		"4242:4343":    {Uid: &runtimeapi.Int64Value{Value: 4242}},
		":web":         {},
		"+1000":        {Username: "+1000"},
		"-1":           {Username: "-1"},
		"4294967296:1": {Username: "4294967296"},
	} {
		got := toImage(image.Image{User: user})
		if got.GetUsername() != want.GetUsername() || !proto.Equal(got.GetUid(), want.GetUid()) {
			t.Errorf("%q: %v", user, got)
		}
	}
}
