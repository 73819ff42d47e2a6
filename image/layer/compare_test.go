package layer

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/image/erofs"
	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
)

// member is one member of a test layer.
type member struct {
	h    tar.Header
	body string
}

func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members {
		m.h.Size = int64(len(m.body))
		if m.h.ModTime.IsZero() {
			m.h.ModTime = time.Unix(1600000000, 0)
		}
		if m.h.PAXRecords != nil {
			m.h.Format = tar.FormatPAX
		}
		if err := w.WriteHeader(&m.h); err != nil {
			t.Fatalf("%s: %v", m.h.Name, err)
		}
		if _, err := io.WriteString(w, m.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// build merges layers into a disk file and returns its path.
func build(t testing.TB, limits Limits, layers ...[]byte) (string, error) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := erofs.NewWriter(f, 8<<30)
	tree := NewTree(out, limits)
	for _, l := range layers {
		if err := tree.Apply(t.Context(), bytes.NewReader(l)); err != nil {
			return "", err
		}
	}
	_, err = out.Finish(tree.Root)
	return f.Name(), err
}

// mount mounts a disk with the host's kernel, after a check by fsck.erofs if that is installed.
func mount(t testing.TB, disk string) string {
	t.Helper()
	if fsck, err := exec.LookPath("fsck.erofs"); err == nil {
		if out, err := exec.Command(fsck, disk).CombinedOutput(); err != nil {
			t.Errorf("fsck.erofs: %v: %s", err, out)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("the kernel mounts a disk only for root")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro", disk, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() { testfs.Unmount(t, dir) })
	return dir
}

// unpack unpacks with the other tool: GNU tar, layer over layer, with whiteouts applied before in the simplest way.
func unpack(t testing.TB, layers ...[]byte) string {
	t.Helper()
	root := t.TempDir()
	for _, l := range layers {
		in := tar.NewReader(bytes.NewReader(l))
		for {
			h, err := in.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			dir, base := filepath.Split(filepath.Join(root, h.Name))
			if base == opaqueMarker {
				entries, _ := os.ReadDir(dir)
				for _, e := range entries {
					os.RemoveAll(filepath.Join(dir, e.Name()))
				}
			} else if hidden, ok := strings.CutPrefix(base, whiteoutPrefix); ok {
				os.RemoveAll(filepath.Join(dir, hidden))
			}
		}
		cmd := exec.Command("tar", "-x", "-p", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--recursive-unlink",
			"--keep-directory-symlink", "--exclude=.wh.*", "-C", root)
		cmd.Stdin = bytes.NewReader(l)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("tar: %v: %s", err, out)
		}
	}
	return root
}

// list describes every entry under root, with everything that a program can see.
func list(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	first := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("mode=%o owner=%d:%d mtime=%d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			body, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" size=%d sum=%x", st.Size, sha256.Sum256(body))
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " target=" + target
		case unix.S_IFCHR, unix.S_IFBLK:
			line += fmt.Sprintf(" device=%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			line += fmt.Sprintf(" links=%d", st.Nlink)
			if known, ok := first[st.Ino]; ok && st.Nlink > 1 {
				line += " same=" + known
			} else {
				first[st.Ino] = rel
			}
		}
		out[rel] = line + xattrs(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func xattrs(t testing.TB, path string) string {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buf)
	if errors.Is(err, syscall.ENOTSUP) {
		return ""
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	value := make([]byte, 64<<10)
	var out []string
	for _, name := range strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if name == "" || name == "security.selinux" {
			continue
		}
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			t.Fatalf("%s: %s: %v", path, name, err)
		}
		out = append(out, fmt.Sprintf("%s=%x", name, value[:n]))
	}
	if len(out) == 0 {
		return ""
	}
	sortStrings(out)
	return " " + strings.Join(out, " ")
}
