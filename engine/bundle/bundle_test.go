package bundle

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/filter"
)

func TestBundle(t *testing.T) {
	dir := t.TempDir()
	spec := &specs.Spec{
		Version: "1.0.2", Hostname: "h", Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
		Linux: &specs.Linux{Seccomp: &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Names: []string{"read"}, Action: specs.ActKill}},
		}},
	}
	mounts := []containerv1.Mount{{Destination: "/v", Source: containerv1.Image{ID: "i"}, Options: []string{"ro"}}}
	at, err := Write(dir, "c", spec, mounts, nil)
	if err != nil || at != filepath.Join(dir, "c") {
		t.Fatal(at, err)
	}
	want := *spec
	filter.Move(&want)
	want.Mounts = append(want.Mounts, specs.Mount{Destination: "/v", Type: "bulkhead.image", Source: "i", Options: []string{"ro"}})
	if got, err := Read(dir, "c"); err != nil || !cmp.Equal(got, &want) {
		t.Errorf("read back: %+v, %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(at, specFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v", info, err)
	}
	if _, err := Write(dir, "c", spec, nil, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("written twice: %v", err)
	}
	for range 2 {
		if err := Remove(dir, "c"); err != nil {
			t.Error(err)
		}
	}
	if _, err := Read(dir, "c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read after the removal: %v", err)
	}
	if err := Remove(filepath.Join(dir, "none"), "c"); err != nil {
		t.Errorf("Remove in a missing directory: got %v, want no error", err)
	}
}

// TestPlanted checks that files that the pod's user puts in the bundle's place have no effect.
func TestPlanted(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, specFile)
	if err := os.WriteFile(secret, []byte(`{"hostname": "secret"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "file", specFile)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"link", "file"} {
		if got, err := Read(dir, id); err == nil {
			t.Errorf("%s: %+v", id, got)
		}
	}
	if err := Remove(dir, "link"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(secret); err != nil {
		t.Errorf("the removal of a link removed its target: %v", err)
	}
}

// TestLength checks that a specification of the maximum length works, and that a longer one is refused on write and
// on read.
func TestLength(t *testing.T) {
	dir := t.TempDir()
	empty, err := json.Marshal(&specs.Spec{Hostname: "x"})
	if err != nil {
		t.Fatal(err)
	}
	most := oci.MaxConfig - len(empty) + 1
	longest := &specs.Spec{Hostname: strings.Repeat("x", most)}
	if _, err := Write(dir, "longest", longest, nil, nil); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, "longest")
	if err != nil || got.Hostname != longest.Hostname {
		t.Errorf("the longest: %v", err)
	}
	_, written := Write(dir, "longer", &specs.Spec{Hostname: strings.Repeat("x", most+1)}, nil, nil)
	if _, err := os.Stat(filepath.Join(dir, "longer")); err == nil {
		t.Error("a longer one leaves its directory")
	}
	file := filepath.Join(dir, "longest", specFile)
	if err := os.WriteFile(file, []byte(strings.Repeat(" ", oci.MaxConfig)+"{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, read := Read(dir, "longest")
	for _, err := range []error{written, read} {
		if !errors.Is(err, oci.ErrInvalid) || !strings.Contains(err.Error(), "config.json is longer than 3145728 bytes") {
			t.Errorf("a longer one: %v", err)
		}
	}
}
