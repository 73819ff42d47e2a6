package build_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/guest/build"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// options returns the options of make guest, with the test's init as the agent.
func options(t *testing.T) build.Options {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	o := build.Options{
		Kernel:       filepath.Join(root, "build/kernel/vmlinuz"),
		Modules:      filepath.Join(root, "build/kernel/modules"),
		Crun:         filepath.Join(root, "build/crun/crun"),
		Launcher:     filepath.Join(root, "build/launcher"),
		Agent:        testInit(t),
		KernelSource: "kernel", CrunSource: "crun", CrunVersion: "1",
		Out: filepath.Join(t.TempDir(), "guest"),
	}
	for _, path := range []string{o.Kernel, o.Modules, o.Crun} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: run make guest first, which fetches and builds what the bundle is made of", err)
		}
	}
	return o
}

func testInit(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "init")
	cmd := testgo.Command(t.Context(), "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "./testdata/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the test's init: %v\n%s", err, text)
	}
	return out
}

func TestSameInputSameBytes(t *testing.T) {
	t.Parallel()
	o := options(t)
	first, err := build.Bundle(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Verify(); err != nil {
		t.Error(err)
	}
	before, err := os.Stat(first.KernelPath())
	if err != nil {
		t.Fatal(err)
	}

	// Again in the same place: nothing is written.
	again, err := build.Bundle(o)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(again.KernelPath())
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("an unchanged kernel was written again")
	}

	// In an empty directory: the same files.
	o.Out = filepath.Join(t.TempDir(), "other")
	other, err := build.Bundle(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Manifest, other.Manifest); diff != "" || first.Digest != other.Digest {
		t.Errorf("two bundles of the same input differ:\n%s", diff)
	}

	// A damaged kernel is replaced, although its size is right.
	if err := os.WriteFile(other.KernelPath(), make([]byte, before.Size()), 0o600); err != nil {
		t.Fatal(err)
	}
	mended, err := build.Bundle(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := mended.Verify(); err != nil {
		t.Errorf("after a damage: %v", err)
	}
}

func TestBundleRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*build.Options){
		"no kernel":   func(o *build.Options) { o.Kernel += ".no" },
		"no modules":  func(o *build.Options) { o.Modules += ".no" },
		"no agent":    func(o *build.Options) { o.Agent += ".no" },
		"no crun":     func(o *build.Options) { o.Crun += ".no" },
		"no launcher": func(o *build.Options) { o.Launcher += ".no" },
	} {
		o := options(t)
		spoil(&o)
		if _, err := build.Bundle(o); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want fs.ErrNotExist", name, err)
		}
		if _, err := guest.Load(o.Out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it left a bundle: %v", name, err)
		}
	}
}
