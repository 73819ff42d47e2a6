package place

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree is a directory with Bulkhead's own directories in it, and places that a pod may or may not have.
func tree(t *testing.T) (dir string, r Rules) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "above", "own")
	for _, d := range []string{own, filepath.Join(dir, "a/b")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "a", "a/out": "/etc", "a/in": "b", "to-own": own, "nowhere": "none"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return dir, Rules{Own: []string{own}}
}

// TestOpen: allowed places are opened at their real paths, and others are refused by name.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir, r := tree(t)
	for _, tt := range []struct {
		path string
		how  OpenOptions
		want error
		at   string // below dir
	}{
		{path: "a", at: "a"},
		{path: "file", at: "file"},
		{path: "link/b", at: "a/b"},
		{path: "a", how: OpenOptions{Part: "b"}, at: "a/b"},
		{path: "link", how: OpenOptions{Part: "in"}, at: "a/b"},
		{path: "a", how: OpenOptions{Part: "made/below"}, at: "a/made/below"},
		{path: "a", how: OpenOptions{Part: "out"}, want: unix.EXDEV},
		{path: "a", how: OpenOptions{Part: "../a"}, want: ErrPart},
		{path: "a", how: OpenOptions{Part: "in/../../.."}, want: ErrPart},
		{path: "file", how: OpenOptions{Part: "x"}, want: unix.ENOTDIR},
		{path: "a/b", how: OpenOptions{Exact: true}, at: "a/b"},
		{path: "link/b", how: OpenOptions{Exact: true}, want: ErrMoved},
		{path: "none", want: unix.ENOENT},
		{path: "file/x", want: unix.ENOTDIR},
		{path: "fifo", want: ErrKind},
		{path: "sock", want: ErrKind},
		{path: "above/own", want: ErrOwn},
		{path: "to-own", want: ErrOwn},
		{path: "above", at: "above"},
	} {
		p, err := r.Open(t.Context(), filepath.Join(dir, tt.path), tt.how)
		if err != nil || tt.want != nil {
			if !errors.Is(err, tt.want) || strings.Count(err.Error(), "host path") != 1 {
				t.Errorf("%s, %+v: %v, want %v", tt.path, tt.how, err, tt.want)
			}
			continue
		}
		if p.Path != filepath.Join(dir, tt.at) || p.Directory != (tt.path != "file") {
			t.Errorf("%s, %+v: it is %+v", tt.path, tt.how, p)
		}
		if hides := slices.Contains(p.Masks, "own"); hides != (tt.path == "above") {
			t.Errorf("%s: hidden are %q", tt.path, p.Masks)
		}
		p.Close()
	}
	for path, want := range map[string]error{
		"relative": ErrPath, "/proc": ErrKernel, "/proc/sys/kernel": ErrKernel, "/sys": ErrKernel, "/dev": ErrKernel, "/dev/null": ErrKind,
	} {
		if p, err := r.Open(t.Context(), path, OpenOptions{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v", path, p, err)
		}
	}
	p, err := r.Open(t.Context(), "/", OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !slices.Contains(p.Masks, "proc") || !slices.Contains(p.Masks, strings.TrimPrefix(r.Own[0], "/")) {
		t.Errorf("the whole host: %+v", p)
	}
}

// TestMissing: a missing place is created where pods' files may lie, and nowhere else.
func TestMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path string
		how  OpenOptions
		want error
		made string
	}{
		"a directory":                {"x/y", OpenOptions{Missing: MakeDir}, nil, "x x/y"},
		"with dots":                  {"x/./y//z/", OpenOptions{Missing: MakeDir}, nil, "x x/y x/y/z"},
		"behind a link":              {"link/x/y", OpenOptions{Missing: MakeDir}, nil, "a/x a/x/y"},
		"and a part of it":           {"x", OpenOptions{Missing: MakeDir, Part: "y/z"}, nil, "x x/y x/y/z"},
		"a part that is to be there": {"a", OpenOptions{Missing: MakeDir, Part: "y/z", Whole: true}, unix.ENOENT, ""},
		"not asked for":              {"x/y", OpenOptions{}, unix.ENOENT, ""},
		"above a missing name":       {"x/../y", OpenOptions{Missing: MakeDir}, unix.ENOENT, ""},
		"below a file":               {"file/x/y", OpenOptions{Missing: MakeDir}, unix.ENOTDIR, ""},
		"where a link leads":         {"nowhere/x", OpenOptions{Missing: MakeDir}, unix.ELOOP, ""},
		"in Bulkhead's own":          {"above/own/x/y", OpenOptions{Missing: MakeDir}, ErrOwn, ""},
		"in there by a link":         {"to-own/x/y", OpenOptions{Missing: MakeDir}, ErrOwn, ""},
		"in there by dots":           {"a/../above/own/x", OpenOptions{Missing: MakeDir}, ErrOwn, ""},
		"a part in there":            {"above", OpenOptions{Part: "own/x/y"}, ErrOwn, ""},
		"a part out of it":           {"x", OpenOptions{Missing: MakeDir, Part: "y/../../z"}, ErrPart, "x"},
		"a file":                     {"a/x", OpenOptions{Missing: MakeFile}, nil, "a/x"},
		"a file without its parent":  {"x/y", OpenOptions{Missing: MakeFile}, unix.ENOENT, ""},
		"a file in Bulkhead's own":   {"to-own/x", OpenOptions{Missing: MakeFile}, ErrOwn, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, r := tree(t)
			before := all(t, dir)
			p, err := r.Open(t.Context(), dir+"/"+tt.path, tt.how)
			if !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			var made []string
			for _, path := range all(t, dir) {
				if !slices.Contains(before, path) {
					made = append(made, path)
				}
			}
			if got := strings.Join(made, " "); got != tt.made {
				t.Errorf("made are %q, want %q", got, tt.made)
			}
			if p == nil {
				return
			}
			defer p.Close()
			if p.Path != filepath.Join(dir, made[len(made)-1]) || p.Directory != (tt.how.Missing != MakeFile) {
				t.Errorf("opened is %+v", p)
			}
		})
	}
}

// TestMissingOfTheKernel: no cgroup is created for a client that names one.
func TestMissingOfTheKernel(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/proc/bulkhead-test/x", "/sys/bulkhead-test", "/dev/bulkhead-test/x"} {
		if p, err := (Rules{}).Open(t.Context(), path, OpenOptions{Missing: MakeDir}); !errors.Is(err, ErrKernel) {
			t.Errorf("%s: %v, %v", path, p, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
}

func all(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, strings.TrimPrefix(path, dir+"/"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestOwnBehindLink: Bulkhead's own directory is not shared through a link.
func TestOwnBehindLink(t *testing.T) {
	t.Parallel()
	dir, r := tree(t)
	r.Own = []string{filepath.Join(dir, "to-own")}
	if p, err := r.Open(t.Context(), filepath.Join(dir, "above/own"), OpenOptions{}); !errors.Is(err, ErrOwn) {
		t.Errorf("%v, %v", p, err)
	}
	p, err := r.Open(t.Context(), filepath.Join(dir, "above"), OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if len(p.Masks) != 1 || p.Masks[0] != "own" {
		t.Errorf("hidden are %q", p.Masks)
	}
}

// TestUnescape: the kernel escapes four characters.
func TestUnescape(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`/a`: "/a", `/a\040b`: "/a b", `/\134040`: `/\040`, `/a\012\011`: "/a\n\t", `/a\04`: `/a\04`, `/a\999`: `/a\999`,
	} {
		if got := unescape(text); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
