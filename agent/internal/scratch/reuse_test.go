package scratch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSetAside: of an earlier VM's files only the volumes stay.
func TestSetAside(t *testing.T) {
	for name, tc := range map[string]struct {
		tree   []string // directories end in a slash, links in "@"
		kept   []string
		nobody bool // no file is moved
	}{
		"a new disk": {tree: []string{"lost+found/"}, nobody: true},
		"a used disk": {
			tree: []string{"lost+found/", "roots/c/x", "volumes/v/f", "volumes/w/", ".ballast"}, kept: []string{"v", "w"},
		},
		"what was being removed":  {tree: []string{"old-1/roots/c/", "old-2/", "volumes/v/"}, kept: []string{"v"}},
		"files and links":         {tree: []string{"x", "roots@", "volumes/f", "volumes/l@", "volumes/roots", "volumes/v/"}, kept: []string{"v"}},
		"a link for the volumes":  {tree: []string{"volumes@"}},
		"a file for the volumes":  {tree: []string{"volumes"}},
		"a name of the next time": {tree: []string{"old-/", "lost+found"}},
	} {
		t.Run(name, func(t *testing.T) {
			at, outside := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(outside, "host"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, entry := range tc.tree {
				plant(t, filepath.Join(at, entry), entry[len(entry)-1], outside)
			}
			rest, err := setAside(at)
			if err != nil || (rest == "") != tc.nobody {
				t.Fatalf("%q, %v", rest, err)
			}
			if err := layout(at); err != nil {
				t.Fatal(err)
			}
			if rest != "" {
				if err := os.RemoveAll(rest); err != nil {
					t.Fatal(err)
				}
			}
			if got := list(t, filepath.Join(at, volumesDir)); !slices.Equal(got, tc.kept) {
				t.Errorf("volumes %v, want %v", got, tc.kept)
			}
			if got := list(t, filepath.Join(at, rootsDir)); len(got) > 0 {
				t.Errorf("roots: %v", got)
			}
			for _, name := range list(t, at) {
				if !slices.Contains([]string{rootsDir, volumesDir, ballastFile, "lost+found"}, name) {
					t.Errorf("%s was left", name)
				}
			}
			if got := list(t, outside); !slices.Equal(got, []string{"host"}) {
				t.Errorf("outside the disk: %v", got)
			}
		})
	}
}

// TestReuseDeep: trees deeper than the limit of descriptors are removed too.
func TestReuseDeep(t *testing.T) {
	at := t.TempDir()
	dir, err := unix.Open(at, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range 300 {
		if err := errors.Join(err, unix.Mkdirat(dir, "deep", 0o700)); err != nil {
			t.Fatal(err)
		}
		above := dir
		dir, err = unix.Openat(above, "deep", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(above)
	}
	unix.Close(dir)
	fds, err := os.ReadDir("/proc/self/fd")
	var was unix.Rlimit
	if err := errors.Join(err, unix.Getrlimit(unix.RLIMIT_NOFILE, &was)); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: uint64(len(fds)) + 100, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err = reuse(at, t.Logf)
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)); err != nil {
		t.Fatal(err)
	}
	if got := list(t, at); !slices.Equal(got, []string{rootsDir, volumesDir}) {
		t.Errorf("there are %v", got)
	}
}

// plant creates a file, directory or link with its parent directories.
func plant(t *testing.T, path string, kind byte, target string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		switch kind {
		case '/':
			err = os.MkdirAll(path, 0o700)
		case '@':
			err = os.Symlink(target, path[:len(path)-1])
		default:
			err = os.WriteFile(path, nil, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
