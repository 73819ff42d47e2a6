package containerd

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

// TestMain runs the tests below a keeper, because containerd's shims lose their parents.
func TestMain(m *testing.M) {
	code, err := procs.Keep(m.Run)
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

// TestContainerd runs two pods, one that ends and one that does not, and checks that nothing is left.
func TestContainerd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	dir, err := os.MkdirTemp("/tmp", "cd") // sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	ctx := testdeadline.Context(t, 2*time.Minute)
	counted, err := account.Open("bulkhead-containerd-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(ctx, Options{Dir: dir, Account: counted})
	if errors.Is(err, ErrAbsent) {
		_ = counted.Close(ctx)
		t.Skip("containerd is not installed: make test installs it")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := pods(ctx, t, c, dir); err != nil {
		said, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Errorf("%v\n%s", err, said)
	}
	if err := c.Close(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
	if err := counted.Close(ctx); err != nil {
		t.Error(err)
	}
}

func pods(ctx context.Context, t *testing.T, c *Containerd, dir string) error {
	const image = "localhost/busybox:test"
	archive := filepath.Join(dir, "image.tar")
	if err := ociimage.WriteArchive(archive, testimage.Busybox(t)); err != nil {
		return err
	}
	if err := errors.Join(c.LoadPause(ctx), c.Load(ctx, archive, image)); err != nil {
		return err
	}
	once, err := c.Start(ctx, "once", image, "true")
	if err != nil {
		return err
	}
	if err := errors.Join(c.Ended(ctx, once), c.End(ctx, once)); err != nil {
		return err
	}
	if _, err = c.Start(ctx, "stays", image, "sleep", "1000"); err != nil {
		return err
	}
	// containerd reads its network configuration again after each change in that directory.
	log, err := os.Stat(filepath.Join(dir, "log"))
	if err == nil && log.Size() > 1<<20 {
		err = fmt.Errorf("containerd wrote %d bytes to its log", log.Size())
	}
	return err
}
