package trusted

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// world is a directory with a file.
func world(t *testing.T) (dir, file string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUntrusted(t *testing.T) {
	asRoot := os.Geteuid() == 0
	for _, test := range []struct {
		name   string
		root   bool
		change func(t *testing.T, dir, file string)
		want   string // empty: it is trusted
	}{
		{"as it is", false, func(*testing.T, string, string) {}, ""},
		{"file for all", false, func(t *testing.T, _, file string) { must(t, os.Chmod(file, 0o666)) }, "chmod go-w"},
		{"file for its group", true, func(t *testing.T, _, file string) {
			must(t, os.Chown(file, 0, 12))
			must(t, os.Chmod(file, 0o664))
		}, "mode 0664"},
		{"file for root's group", true, func(t *testing.T, _, file string) { must(t, os.Chmod(file, 0o664)) }, ""},
		{"file of another", true, func(t *testing.T, _, file string) { must(t, os.Chown(file, 65534, 0)) }, "belongs to user 65534"},
		{"directory for all", false, func(t *testing.T, dir, _ string) { must(t, os.Chmod(dir, 0o777)) }, "mode 0777"},
		{"sticky directory", false, func(t *testing.T, dir, _ string) { must(t, os.Chmod(dir, 0o777|os.ModeSticky)) }, ""},
		{"directory of another", true, func(t *testing.T, dir, _ string) { must(t, os.Chown(dir, 65534, 0)) }, "belongs to user 65534"},
		{"access list", true, func(t *testing.T, _, file string) {
			must(t, os.Chmod(file, 0o664))
			// Version 2; user::rw-, user:65534:rw-, group::r--, mask::rw-, other::r--.
			list := "\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x06\x00\xfe\xff\x00\x00" +
				"\x04\x00\x04\x00\xff\xff\xff\xff" + "\x10\x00\x06\x00\xff\xff\xff\xff" + "\x20\x00\x04\x00\xff\xff\xff\xff"
			if err := unix.Setxattr(file, "system.posix_acl_access", []byte(list), 0); errors.Is(err, unix.EOPNOTSUPP) {
				t.Skip("the file system has no access lists")
			} else if err != nil {
				t.Fatal(err)
			}
		}, "mode 0664"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.root && !asRoot {
				t.Skip("needs root")
			}
			dir, file := world(t)
			test.change(t, dir, file)
			data, err := Read(file, 10)
			switch {
			case test.want == "" && (err != nil || string(data) != "text"):
				t.Errorf("%q: %v", data, err)
			case test.want != "" && (!errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAt(t *testing.T) {
	dir, file := world(t)
	must(t, os.Symlink(file, filepath.Join(dir, "link")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	d, err := Dir(dir)
	must(t, err)
	defer d.Close()
	f, err := At(d, "f")
	must(t, err)
	defer f.Close()
	if f.Name() != file {
		t.Errorf("it is named %s", f.Name())
	}
	if _, err := At(d, "link"); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a link: %v", err)
	}
	for _, name := range []string{"pipe", "sub"} {
		if f, err := At(d, name); f != nil || err != nil {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	for _, name := range []string{"../d/f", "none"} {
		if f, err := At(d, name); err == nil {
			f.Close()
			t.Errorf("%s was opened", name)
		}
	}
	must(t, os.Chmod(file, 0o666))
	if _, err := At(d, "f"); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a file for all: %v", err)
	}
}

func TestOpen(t *testing.T) {
	dir, file := world(t)
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(file, link))
	if err := Files(link, "", file); err != nil {
		t.Error(err)
	}
	if _, err := Read(link, 3); err == nil || !strings.Contains(err.Error(), "larger than 3 bytes") {
		t.Errorf("a long file: %v", err)
	}
	if err := Files(dir); err == nil {
		t.Error("a directory counts as a file")
	}
	must(t, os.Chmod(file, 0o666))
	if err := Files(link); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a link to a file for all: %v", err)
	}
}
