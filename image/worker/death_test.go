package worker

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// diskEnv names the disk of a child of TestEndsWithTheEngine.
const diskEnv = "WORKER_TEST_DISK"

// TestEndsWithTheEngine: a compromised process that stays when its pipes are closed is killed with the engine.
func TestEndsWithTheEngine(t *testing.T) {
	if path := os.Getenv(diskEnv); path != "" {
		engine(path)
		return
	}
	libexec := filepath.Dir(program(t, "./testdata/stay"))
	if err := os.Rename(filepath.Join(libexec, "stay"), filepath.Join(libexec, convert.Program)); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "disk")
	ctx := testdeadline.Context(t, 10*time.Second)
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestEndsWithTheEngine$")
	child.Env = append(os.Environ(), diskEnv+"="+disk, "BULKHEAD_LIBEXEC="+libexec)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	process := watch(ctx, t, disk)
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait()
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 20_000)
	if err != nil || ready != 1 {
		t.Errorf("the process lives: %v", err)
		_ = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0)
	}
}

// engine waits for a disk forever.
func engine(path string) {
	disk, err := os.Create(path)
	if err != nil {
		return
	}
	silent, _ := io.Pipe()
	_, _ = convert.Disk(context.Background(), nil, disk, 1<<20, []convert.Layer{{Content: silent}})
}

// watch returns a pidfd of the process that has written its id to a file.
func watch(ctx context.Context, t *testing.T, path string) (fd int) {
	t.Helper()
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(path)
		number, whole := strings.CutSuffix(string(text), "\n")
		if !whole {
			continue
		}
		pid, err := strconv.Atoi(number)
		if err == nil {
			fd, err = unix.PidfdOpen(pid, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	t.Fatalf("it never began: %v", ctx.Err())
	return -1
}
