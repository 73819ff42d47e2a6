package copyup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// image creates a root with one file of each kind in /data.
func image(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	data := filepath.Join(root, "data")
	at := func(name string) string { return filepath.Join(data, name) }
	old := time.Unix(1_000_000_000, 0)
	for _, err := range []error{
		os.MkdirAll(at("d/e"), 0o755),
		os.WriteFile(at("d/file"), []byte(strings.Repeat("text", 1<<20)), 0o640),
		os.WriteFile(at("program"), []byte("x"), 0o755), os.Link(at("d/file"), at("again")), os.Symlink("/etc/passwd", at("link")),
		unix.Mkfifo(at("fifo"), 0o600), os.Symlink("data", filepath.Join(root, "through")),
		os.WriteFile(filepath.Join(root, "plain"), nil, 0o600),
		os.Lchown(at("link"), 7, 8), os.Chown(at("d"), 7, 8), os.Chown(at("program"), 7, 8), unix.Chmod(at("program"), 0o4755),
		unix.Setxattr(at("program"), "user.word", []byte("said"), 0), os.Chtimes(at("d/file"), old, old), os.Chtimes(at("d"), old, old),
		os.Chown(data, 7, 8), os.Chmod(data, 0o770),
	} {
		if err != nil && !errors.Is(err, unix.ENOTSUP) {
			t.Fatal(err)
		}
	}
	return root
}

// tree returns all properties of the files in a directory.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		name, _ := filepath.Rel(dir, path)
		words := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, _ := os.ReadFile(path)
			value := make([]byte, 16)
			n, _ := unix.Lgetxattr(path, "user.word", value)
			words = fmt.Sprintf("%d %x %s %d", len(data), sum(data), value[:max(n, 0)], st.Mtim.Sec)
		case unix.S_IFLNK:
			words, _ = os.Readlink(path)
		case unix.S_IFDIR:
			if name != "." {
				words = fmt.Sprint(st.Mtim.Sec)
			}
		}
		nlink := st.Nlink
		if name == "." {
			nlink = 0
		}
		all = append(all, fmt.Sprintf("%s %o %d:%d %d %s", name, st.Mode, st.Uid, st.Gid, nlink, words))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sum(data []byte) (n uint32) {
	for _, b := range data {
		n = n*31 + uint32(b)
	}
	return n
}

// TestFill: an empty volume becomes a copy of the image's directory, wherever an earlier attempt stopped. A volume with
// contents stays unchanged.
func TestFill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("owners are not checked: only root can change them")
		return
	}
	root := image(t)
	want := tree(t, filepath.Join(root, "data"))
	for name, prepare := range map[string]func(volume string) error{
		"empty":     func(string) error { return nil },
		"of ext4":   func(volume string) error { return os.Mkdir(filepath.Join(volume, lostFound), 0o700) },
		"cut short": func(volume string) error { return os.MkdirAll(filepath.Join(volume, making, "part"), 0o700) },
		"copied": func(volume string) error {
			err := Fill(t.Context(), root, "/data", volume)
			dir := filepath.Join(volume, made)
			return errors.Join(err, os.Mkdir(dir, 0o700), os.Rename(filepath.Join(volume, "d"), filepath.Join(dir, "d")),
				os.Chown(dir, 7, 8), os.Chmod(dir, 0o770), os.Chmod(volume, 0o777))
		},
	} {
		volume := t.TempDir()
		if err := prepare(volume); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"/data", "/through", "/data"} {
			if err := Fill(t.Context(), root, at, volume); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = os.Remove(filepath.Join(volume, lostFound)) // most volumes lack it
		if diff := cmp.Diff(want, tree(t, volume)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	full := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(full, "own"), nil, 0o600), Fill(t.Context(), root, "/data", full)); err != nil {
		t.Error(err)
	}
	if got := tree(t, full); len(got) != 2 {
		t.Errorf("one with something in it: %q", got)
	}
}

// TestFillBesideOurNames: files with reserved names are skipped, and the copy is otherwise complete.
func TestFillBesideOurNames(t *testing.T) {
	root := t.TempDir()
	for _, name := range append([]string{"own"}, ours...) {
		err := errors.Join(os.MkdirAll(filepath.Join(root, "d"), 0o755), os.WriteFile(filepath.Join(root, "d", name), nil, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	volume := t.TempDir()
	if err := os.Mkdir(filepath.Join(volume, lostFound), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Fill(t.Context(), root, "/d", volume); err != nil {
			t.Error(err)
		}
		if got, err := filepath.Glob(volume + "/*"); err != nil || len(got) != 2 || filepath.Base(got[1]) != "own" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestChmod: a file that has replaced a pipe keeps its mode.
func TestChmod(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.Symlink("file", filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	of := unix.Stat_t{Mode: unix.S_IFIFO | 0o666}
	for name, want := range map[string]uint32{"link": 0o600, "file": 0o600, "fifo": 0o666} {
		err := chmod(fd, name, &of)
		var st unix.Stat_t
		if (err == nil) != (name == "fifo") || unix.Stat(filepath.Join(dir, name), &st) != nil || st.Mode&0o7777 != want {
			t.Errorf("%s: %v, mode %o", name, err, st.Mode)
		}
	}
}

// TestFillNothing: a missing directory copies nothing, and a failed copy leaves nothing.
func TestFillNothing(t *testing.T) {
	root := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	deep := filepath.Join(root, "deep", strings.Repeat("d/", maxLevels+1))
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "plain"), nil, 0o600), os.Mkdir(outside, 0o700), os.WriteFile(outside+"/secret", nil, 0o600),
		os.Symlink(outside, filepath.Join(root, "out")), os.MkdirAll(deep, 0o700),
		os.Mkdir(filepath.Join(root, "some"), 0o700), os.WriteFile(filepath.Join(root, "some/file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		at   string
		ctx  context.Context //nolint:containedctx // of a table row
		want error
	}{
		{at: "/none"}, {at: "/plain"}, {at: "/out"}, {at: "/none/deeper"},
		{at: "/deep", want: ErrTooMuch}, {at: "/some", ctx: ended, want: context.Canceled},
	} {
		ctx := t.Context()
		if tt.ctx != nil {
			ctx = tt.ctx
		}
		volume := t.TempDir()
		if err := Fill(ctx, root, tt.at, volume); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.at, err, tt.want)
		}
		if left, err := os.ReadDir(volume); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", tt.at, left, err)
		}
	}
}
