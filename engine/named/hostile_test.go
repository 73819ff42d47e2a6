package named

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deep creates a tree with so many levels, each with a file.
func deep(t *testing.T, at string, levels int) {
	t.Helper()
	dir, err := unix.Open(at, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	name := strings.Repeat("d", 250)
	for range levels {
		if err == nil {
			err = unix.Mkdirat(dir, name, 0o777)
		}
		if err == nil {
			err = unix.Mknodat(dir, "f", unix.S_IFREG|0o666, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		above := dir
		dir, err = unix.Openat(above, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(above)
	}
	unix.Close(dir)
}

// fewDescriptors limits the process to so many more descriptors until the test ends.
func fewDescriptors(t *testing.T, left uint64) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	var was unix.Rlimit
	err = errors.Join(err, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	if err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = uint64(len(open)) + left
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDeep checks that the work on deeply nested directories of a pod needs little memory and few descriptors.
func TestDeep(t *testing.T) {
	const levels = 1500
	s := In(t.TempDir())
	v, err := s.Create(t.Context(), Volume{Name: "data", Kind: Shared})
	if err != nil {
		t.Fatal(err)
	}
	deep(t, s.Files("data"), levels)
	fewDescriptors(t, 100)
	var used int64
	if bytes := allocated(func() { used = s.Used(t.Context(), v) }); bytes > 8<<20 {
		t.Errorf("its use cost %d MiB", bytes>>20)
	}
	if used < 60*4096 || used > levels*8192 {
		t.Errorf("it uses %d bytes", used)
	}
	if os.Geteuid() == 0 {
		bytes := allocated(func() { err = s.Chown(t.Context(), "data", 99) })
		if bytes > 8<<20 || !errors.Is(err, ErrInvalid) || len(err.Error()) > 300 {
			t.Errorf("changed the group, with %d MiB: %v", bytes>>20, err)
		}
	}
	if err := remove(t, s, "data"); err != nil {
		t.Error(err)
	}
	alone(t, s)
	left := filepath.Join(s.dir, gonePrefix+"1")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	deep(t, left, levels)
	if err := s.Reap(t.Context()); err != nil {
		t.Error(err)
	}
	alone(t, s)
}

// TestChownSetID checks that no file gets a directory's set-id bits if a pod swaps them during Chown.
func TestChownSetID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not looked at: an ordinary user gives nothing away")
		return
	}
	s := In(t.TempDir())
	if _, err := s.Create(t.Context(), Volume{Name: "data", Kind: Shared}); err != nil {
		t.Fatal(err)
	}
	at := s.Files("data")
	d, f := filepath.Join(at, "d"), filepath.Join(at, "f")
	err := errors.Join(os.Mkdir(d, 0o777), os.WriteFile(f, nil, 0o777), unix.Chmod(d, 0o6777))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { // the pod
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, d, unix.AT_FDCWD, f, unix.RENAME_EXCHANGE); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 2000 {
		if err := errors.Join(unix.Chmod(at, 0o755), s.Chown(t.Context(), "data", 99)); err != nil {
			t.Error(err)
		}
		if info, err := file.Stat(); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("the file is %v", info.Mode())
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}
