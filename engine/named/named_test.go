package named

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestCheck(t *testing.T) {
	for _, name := range []string{"a", "0", "Data_1.x-y", strings.Repeat("a", 255)} {
		if err := Check(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", ".making", "-a", "_a", "a/b", "a b", "ä", "a\x00", "a\n", strings.Repeat("a", 256)} {
		if err := Check(name); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestLife(t *testing.T) {
	for _, kind := range []Kind{Disk, Shared, Block} {
		t.Run(string(kind), func(t *testing.T) {
			s := In(t.TempDir())
			asked := Volume{Name: "data", Kind: kind, Bytes: 100 << 20, Labels: map[string]string{"a": "b"}, Claim: "ns/data", Modes: []string{"m"}}
			if all, err := s.List(); len(all) != 0 || err != nil {
				t.Errorf("list of an empty store: %v, %v", all, err)
			}
			made, err := s.Create(t.Context(), asked)
			if err != nil {
				t.Fatal(err)
			}
			want := asked
			want.Created = made.Created
			if diff := cmp.Diff(want, made); diff != "" || made.Created.IsZero() {
				t.Error(diff)
			}
			again := asked
			again.Bytes = 1 << 30
			if old, err := s.Create(t.Context(), again); !errors.Is(err, ErrExists) || cmp.Diff(made, old) != "" {
				t.Errorf("a second time: %+v, %v", old, err)
			}
			all, err := In(filepath.Dir(s.dir)).List() // another process
			if err != nil || cmp.Diff([]Volume{made}, all) != "" {
				t.Errorf("listed: %+v, %v", all, err)
			}
			if used := s.Used(t.Context(), made); used > 4<<20 || kind == Disk && used == 0 {
				t.Errorf("it uses %d bytes", used)
			}
			if err := remove(t, s, "data"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get("data"); !errors.Is(err, ErrNotFound) {
				t.Errorf("after its removal: %v", err)
			}
			if err := remove(t, s, "data"); !errors.Is(err, ErrNotFound) {
				t.Errorf("a second removal: %v", err)
			}
			alone(t, s)
		})
	}
}

// alone checks that the store contains only those volumes.
func alone(t *testing.T, s *Store, volumes ...string) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		if e.Name() != lockFile {
			there = append(there, e.Name())
		}
	}
	if diff := cmp.Diff(volumes, there); diff != "" {
		t.Errorf("there is %s", diff)
	}
}

func TestCreateRefuses(t *testing.T) {
	s := In(t.TempDir())
	for _, tt := range []struct {
		name string
		v    Volume
		want error
	}{
		{"a path", Volume{Name: "../x", Kind: Disk}, ErrName},
		{"no kind", Volume{Name: "x"}, ErrInvalid},
		{"a negative size", Volume{Name: "x", Kind: Shared, Bytes: -1}, ErrSize},
		{"a disk beyond a slot", Volume{Name: "x", Kind: Disk, Bytes: 1 << 50}, ErrSize},
		{"too many labels", Volume{Name: "x", Kind: Shared, Labels: map[string]string{"a": strings.Repeat("b", maxLabels)}}, ErrInvalid},
	} {
		if _, err := s.Create(t.Context(), tt.v); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if made, err := s.Create(t.Context(), Volume{Name: "x", Kind: Disk}); err != nil || made.Bytes != DefaultSize {
		t.Errorf("without a size: %+v, %v", made, err)
	}
	alone(t, s, "x")
}

// TestTogether checks that concurrent Create and Remove see a volume completely or not at all.
func TestTogether(t *testing.T) {
	data := t.TempDir()
	var wg sync.WaitGroup
	var made, removed atomic.Int32
	for range 8 {
		wg.Go(func() {
			s := In(data)
			for range 10 {
				v, err := s.Create(t.Context(), Volume{Name: "data", Kind: Shared, Bytes: 7})
				if err == nil {
					made.Add(1)
				}
				if err != nil && !errors.Is(err, ErrExists) || v.Bytes != 7 || v.Damage != "" {
					t.Errorf("%+v, %v", v, err)
				}
				if all, err := s.List(); err != nil || len(all) > 1 || len(all) == 1 && all[0].Damage != "" {
					t.Errorf("%+v, %v", all, err)
				}
				if err := s.Reap(t.Context()); err != nil {
					t.Error(err)
				}
				if err := remove(t, s, "data"); err == nil {
					removed.Add(1)
				} else if !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() != removed.Load() {
		t.Errorf("%d made, %d removed", made.Load(), removed.Load())
	}
	alone(t, In(data))
}

// TestCrash checks that a process killed between two steps leaves a complete volume or none, and that Reap removes
// the rest.
func TestCrash(t *testing.T) {
	s := In(t.TempDir())
	if _, err := s.Create(t.Context(), Volume{Name: "other", Kind: Shared}); err != nil {
		t.Fatal(err)
	}
	for name, left := range map[string]string{
		"begun": makingDir, "made": filepath.Join(makingDir, recordFile), "filled": filepath.Join(makingDir, filesDir, "f"),
		"renamed": filepath.Join(gonePrefix+"1", "data", filesDir, "f"), "not renamed yet": gonePrefix + "2",
	} {
		if err := os.MkdirAll(filepath.Join(s.dir, left), 0o700); err != nil {
			t.Fatal(err)
		}
		if all, err := s.List(); err != nil || len(all) != 1 {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
		if strings.HasPrefix(left, makingDir) { // the next one starts again
			if _, err := s.Create(t.Context(), Volume{Name: "data", Kind: Shared}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := remove(t, s, "data"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Reap(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		alone(t, s, "other")
	}
}

// TestDamaged checks that an unreadable volume is listed, cannot be used, and can be removed.
func TestDamaged(t *testing.T) {
	s := In(t.TempDir())
	for name, damage := range map[string]func(dir string) error{
		"no-record":   func(dir string) error { return os.Remove(filepath.Join(dir, recordFile)) },
		"cut-record":  func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 5) },
		"no-disk":     func(dir string) error { return os.Remove(filepath.Join(dir, diskFile)) },
		"linked-disk": func(dir string) error { return relink(filepath.Join(dir, diskFile)) },
	} {
		if _, err := s.Create(t.Context(), Volume{Name: name, Kind: Disk, Bytes: 1}); err != nil {
			t.Fatal(err)
		}
		if err := damage(s.Dir(name)); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Get(name); err != nil || v.Damage == "" {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		if _, err := s.Grow(t.Context(), name, 1<<30); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: grown: %v", name, err)
		}
		if err := remove(t, s, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	alone(t, s)
}

func relink(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) }

func TestGrow(t *testing.T) {
	s := In(t.TempDir())
	for _, kind := range []Kind{Disk, Shared, Block} {
		name := string(kind)
		if _, err := s.Create(t.Context(), Volume{Name: name, Kind: kind, Bytes: 100 << 20}); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Grow(t.Context(), name, 200<<20); err != nil || v.Bytes != 200<<20 {
			t.Errorf("%s: %+v, %v", kind, v, err)
		}
		if _, err := s.Grow(t.Context(), name, 100<<20); !errors.Is(err, ErrSize) {
			t.Errorf("%s: shrunk: %v", kind, err)
		}
		if v, err := s.Get(name); err != nil || v.Bytes != 200<<20 {
			t.Errorf("%s: then %+v, %v", kind, v, err)
		}
	}
	if _, err := s.Grow(t.Context(), "disk", 1<<50); !errors.Is(err, ErrSize) {
		t.Errorf("beyond a slot: %v", err)
	}
	if _, err := s.Grow(t.Context(), "none", 1<<30); !errors.Is(err, ErrNotFound) {
		t.Errorf("none: %v", err)
	}
}

// TestInUse checks that a disk that a VM has can be neither removed nor grown.
func TestInUse(t *testing.T) {
	s := In(t.TempDir())
	if _, err := s.Create(t.Context(), Volume{Name: "data", Kind: Disk, Bytes: 1}); err != nil {
		t.Fatal(err)
	}
	vm, err := os.OpenFile(s.Image("data"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := unix.Flock(int(vm.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := remove(t, s, "data"); !errors.Is(err, ErrInUse) {
		t.Errorf("removed: %v", err)
	}
	if _, err := s.Grow(t.Context(), "data", 1<<30); !errors.Is(err, ErrInUse) {
		t.Errorf("grown: %v", err)
	}
	if v, err := s.Get("data"); err != nil || v.Damage != "" {
		t.Errorf("it is %+v, %v", v, err)
	}
}

// TestUsedIsConfined checks that Used follows no link of a pod.
func TestUsedIsConfined(t *testing.T) {
	s := In(t.TempDir())
	v, err := s.Create(t.Context(), Volume{Name: "data", Kind: Shared})
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "large")
	err = errors.Join(os.WriteFile(outside, make([]byte, 1<<20), 0o600),
		os.Symlink(outside, filepath.Join(s.Files("data"), "a")), os.Symlink(filepath.Dir(outside), filepath.Join(s.Files("data"), "b")),
		unix.Mkfifo(filepath.Join(s.Files("data"), "fifo"), 0o600),
		os.WriteFile(filepath.Join(s.Files("data"), "own"), make([]byte, 64<<10), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if used := s.Used(t.Context(), v); used < 64<<10 || used > 256<<10 {
		t.Errorf("it uses %d bytes", used)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if used := s.Used(ended, v); used > 64<<10 {
		t.Errorf("without access to it, it uses %d bytes", used)
	}
}

// remove removes a volume with its content.
func remove(t *testing.T, s *Store, name string) error {
	t.Helper()
	rest, err := s.Remove(t.Context(), name)
	if err != nil {
		return err
	}
	return rest(t.Context())
}
