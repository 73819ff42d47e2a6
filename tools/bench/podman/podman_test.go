package podman

import (
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

// TestMain runs the tests below a keeper, because podman waits until its monitors are reaped.
func TestMain(m *testing.M) {
	code, err := procs.Keep(m.Run)
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

// TestPodman runs a container and checks that nothing is left.
func TestPodman(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podman uses another storage driver for an ordinary user")
	}
	top := t.TempDir()
	dir := filepath.Join(top, "podman")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Open(t.Context(), dir, nil)
	if errors.Is(err, ErrAbsent) {
		t.Skip("podman is not installed: make test installs it")
	}
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(top, "image.tar")
	if err := ociimage.WriteArchive(archive, testimage.Busybox(t)); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	if err := p.Load(ctx, archive, "localhost/busybox:test"); err != nil {
		t.Error(err)
	} else if r, err := p.Run(ctx, "run", "--rm", "localhost/busybox:test", "echo", "here"); err != nil || r.Out != "here\n" {
		t.Errorf("it printed %q: %v", r.Out, err)
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*" + p.cgroup)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
