package guesttree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// grow makes a tree of so many levels in a directory: in each a file, a link out, an empty directory, a
// side branch of two, and the next level. A level that is done is given to each of done.
func grow(t *testing.T, at string, levels int, done ...func(dir int) error) {
	t.Helper()
	dir, err := unix.Open(at, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	next := strings.Repeat("n", 250)
	for range levels {
		err = errors.Join(err, unix.Mknodat(dir, "file", unix.S_IFREG|0o600, 0), unix.Symlinkat("/etc", dir, "link"),
			unix.Mkdirat(dir, "empty", 0o700), unix.Mkdirat(dir, "side", 0o700), unix.Mkdirat(dir, "side/below", 0o700),
			unix.Mkdirat(dir, next, 0o700))
		if err != nil {
			t.Fatal(err)
		}
		above := dir
		dir, err = unix.Openat(above, next, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		for _, f := range done {
			err = errors.Join(err, f(above))
		}
		unix.Close(above)
	}
	unix.Close(dir)
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}

// few limits the process to little more than MaxLevels descriptors, until the test ends.
func few(t *testing.T) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	var was unix.Rlimit
	if err := errors.Join(err, unix.Getrlimit(unix.RLIMIT_NOFILE, &was)); err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: uint64(len(fds)) + MaxLevels + 8, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

func TestRemove(t *testing.T) {
	for _, levels := range []int{0, 1, MaxLevels - 1, MaxLevels, MaxLevels + 1, 200} {
		t.Run(fmt.Sprint(levels, " levels"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tree")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			grow(t, path, levels)
			few(t)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := Remove(t.Context(), path); err != nil {
				t.Error(err)
			}
			runtime.ReadMemStats(&after)
			if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 4<<20+uint64(levels)<<14 {
				t.Errorf("it cost %d KiB", bytes>>10)
			}
			gone(t, path)
			if err := Remove(t.Context(), path); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRemoveWide: a directory of many portions, and one file, and a link to a directory.
func TestRemoveWide(t *testing.T) {
	in := t.TempDir()
	tree, outside := filepath.Join(in, "tree"), filepath.Join(in, "outside")
	err := errors.Join(os.Mkdir(tree, 0o700), os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "f"), nil, 0o600),
		os.Symlink(outside, filepath.Join(tree, "link")), unix.Mkfifo(filepath.Join(tree, "fifo"), 0o600),
		os.Symlink(outside, filepath.Join(in, "link")))
	for i := range 5 * portion {
		file, dir := filepath.Join(tree, fmt.Sprint("f", i)), filepath.Join(tree, fmt.Sprint("d", i))
		err = errors.Join(err, os.WriteFile(file, nil, 0o600), os.Mkdir(dir, 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{tree, filepath.Join(in, "link"), filepath.Join(in, "none", "none")} {
		if err := Remove(t.Context(), path); err != nil {
			t.Error(err)
		}
		gone(t, path)
	}
	if _, err := os.Lstat(filepath.Join(outside, "f")); err != nil {
		t.Error(err)
	}
}

// TestRemoveClosed: modes that deny the owner access do not protect the tree.
func TestRemoveClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	owner := os.Geteuid()
	if owner == 0 {
		owner = 65534
	}
	hide := func(dir int) (err error) {
		for _, name := range []string{"file", "side/below", "side", "empty", "."} {
			err = errors.Join(err, unix.Fchownat(dir, name, owner, -1, 0), unix.Fchmodat(dir, name, 0, 0))
		}
		return err
	}
	grow(t, path, MaxLevels+10, hide)
	in := filepath.Dir(path)
	if err := errors.Join(os.Chown(path, owner, -1), os.Chown(in, owner, -1), os.Chmod(filepath.Dir(in), 0o711)); err != nil {
		t.Fatal(err)
	}
	removed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if _, err := unix.SetfsuidRetUid(owner); err != nil {
			t.Error(err)
		}
		removed <- Remove(context.Background(), path)
	}()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	gone(t, path)
}

// TestMounts: mounts in a tree are neither entered nor emptied, and the rest is removed.
func TestMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not looked at: an ordinary user mounts nothing")
		return
	}
	in := t.TempDir()
	tree, outside := filepath.Join(in, "tree"), filepath.Join(in, "outside")
	at := filepath.Join(tree, "a", "mounted")
	err := errors.Join(os.MkdirAll(at, 0o700), os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "f"), nil, 0o600),
		os.WriteFile(filepath.Join(tree, "f"), nil, 0o600), os.WriteFile(filepath.Join(tree, "a/f"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the mounts are this thread's
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(outside, at, "", unix.MS_BIND, ""))
		if err != nil {
			t.Error(err)
			return
		}
		var names []string
		err = Walk(context.Background(), tree, Bounds{Levels: MaxLevels}, func(_ int, name string, _ *unix.Stat_t) error {
			names = append(names, name)
			return nil
		})
		if len(names) != 4 || err != nil {
			t.Errorf("seen: %q, %v", names, err)
		}
		// The tree itself may be a mount.
		seen := 0
		err = Walk(context.Background(), at, Bounds{Levels: MaxLevels}, func(int, string, *unix.Stat_t) error { seen++; return nil })
		if seen != 1 || err != nil {
			t.Errorf("a tree that is mounted: %d seen, %v", seen, err)
		}
		// Nor does it get the group.
		const group = 4321
		if err := ChownAlways(context.Background(), tree, group); err != nil {
			t.Error(err)
		}
		for path, want := range map[string]uint32{tree: group, filepath.Join(tree, "a/f"): group, at: 0, filepath.Join(at, "f"): 0} {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || st.Gid != want {
				t.Errorf("%s is of group %d: %v", path, st.Gid, err)
			}
		}
		if err := Remove(context.Background(), tree); !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EBUSY) {
			t.Error(err)
		}
		for path, there := range map[string]bool{"a/f": false, "f": false, "a/mounted/f": true} {
			if _, err := os.Lstat(filepath.Join(tree, path)); (err == nil) != there {
				t.Errorf("%s: %v", path, err)
			}
		}
	}()
	<-done
	if err := Remove(t.Context(), tree); err != nil {
		t.Error(err)
	}
	gone(t, tree)
	if _, err := os.Lstat(filepath.Join(outside, "f")); err != nil {
		t.Error(err)
	}
}

// TestRemoveTogether: several callers remove one tree, while another process creates files in it.
func TestRemoveTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	grow(t, path, 150)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Remove(ended, path); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 1000 {
			_ = os.Mkdir(filepath.Join(path, "side", fmt.Sprint(i)), 0o700)
		}
	})
	for range 4 {
		all.Go(func() {
			if err := Remove(t.Context(), path); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := Remove(t.Context(), path); err != nil {
		t.Error(err)
	}
	gone(t, path)
}

func TestWalk(t *testing.T) {
	path := t.TempDir()
	grow(t, path, 100)
	enough := errors.New("enough")
	for _, tt := range []struct {
		name   string
		b      Bounds
		stop   int
		seen   int
		reason error
	}{
		{"three levels", Bounds{Levels: 3}, 0, 3*6 - 1, ErrBounds}, // below side lies one more, at each level but the last
		{"all that is allowed", Bounds{Levels: 1 << 20}, 0, MaxLevels*6 - 1, ErrBounds},
		{"entries", Bounds{Levels: MaxLevels, Entries: 7}, 0, 7, ErrBounds},
		{"visit ends it", Bounds{Levels: MaxLevels}, 5, 5, enough},
	} {
		t.Run(tt.name, func(t *testing.T) {
			few(t)
			seen := 0
			err := Walk(t.Context(), path, tt.b, func(int, string, *unix.Stat_t) error {
				if seen++; seen == tt.stop {
					return enough
				}
				return nil
			})
			if seen != tt.seen || !errors.Is(err, tt.reason) {
				t.Errorf("%d seen, %v", seen, err)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Walk(ended, path, Bounds{Levels: 1}, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := Remove(t.Context(), path); err != nil {
		t.Error(err)
	}
}
