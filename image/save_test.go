package image

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// every has a file of every kind, with all attributes that a layer can have.
func every() []entry {
	special := func(kind byte, name string, major, minor int64) entry {
		return entry{Header: tar.Header{Typeflag: kind, Name: name, Mode: 0o620, Devmajor: major, Devminor: minor}}
	}
	owned := file("usr/bin/su", "set")
	owned.Mode, owned.Uid, owned.Gid = 0o6755, 1000, 65536
	capable := file("usr/bin/ping", "cap")
	capable.Format, capable.PAXRecords = tar.FormatPAX, map[string]string{"SCHILY.xattr.user.note": "a\x00b"}
	return []entry{
		{Header: tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o711}},
		{Header: tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o1777}},
		owned, capable, file("empty", ""), file("large", randomText(300000)), file("holes", strings.Repeat("\x00", 1<<20)+"end"),
		file(strings.Repeat("long/", 30)+strings.Repeat("n", 255), "deep"),
		{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "usr/bin/su"}},
		{Header: tar.Header{Typeflag: tar.TypeLink, Name: "again", Linkname: "large"}},
		special(tar.TypeFifo, "pipe", 0, 0), special(tar.TypeChar, "null", 1, 3), special(tar.TypeBlock, "disk", 259, 70000),
	}
}

// contents lists a disk's files with all attributes.
func contents(t *testing.T, s *Store, id string) map[string]erofs.Stat {
	t.Helper()
	disk, err := s.OpenDisk(id)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	files, err := erofs.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]erofs.Stat{}
	err = fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		st := *info.Sys().(*erofs.Stat)
		st.Ino, st.InodeLayout = 0, 0
		all[path] = st
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSave: an image that is saved and loaded has the same files, configuration and name, in both formats. After its
// removal it has no references.
func TestSave(t *testing.T) {
	s, _ := openStore(t, "run")
	host := startRegistry(t, nil)
	img := imageOf(t, tarOf(t, file("empty", "not yet"), file("gone", "x")), tarOf(t, append(every(), file(".wh.gone", ""))...))
	push(t, host+"/demo:1", img)
	pulled, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Tag(testContext(t), pulled.ID, []string{"other:1"}); err != nil {
		t.Fatal(err)
	}
	want := contents(t, s, pulled.ID)
	if len(want) < 13 || len(want["usr/bin/ping"].Xattrs) != 1 || want["again"].Nlink != 2 {
		t.Fatalf("unexpected image: %+v", want)
	}
	for format, asked := range map[string]string{"docker-archive": host + "/demo:1", "oci-archive": host + "/demo:1"} {
		path := filepath.Join(t.TempDir(), "saved.tar")
		if err := s.Save(testContext(t), asked, path, format); err != nil {
			t.Fatal(err)
		}
		other, _ := openStore(t, "run")
		got := load(t, other, path, "")
		if diff := cmp.Diff(want, contents(t, other, got.ID)); diff != "" {
			t.Errorf("%s: saved (-) and loaded (+) differ:\n%s", format, diff)
		}
		if diff := cmp.Diff(pulled.Config, got.Config); diff != "" || strings.Join(got.Names, " ") != asked {
			t.Errorf("%s: names %q, configuration:\n%s", format, got.Names, diff)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	// Without a chosen name the archive has both names, and other tools can read it too.
	path := filepath.Join(t.TempDir(), "saved.tar")
	if err := s.Save(testContext(t), pulled.ID, path, "docker-archive"); err != nil {
		t.Fatal(err)
	}
	m, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	if err != nil || len(m) != 1 || len(m[0].RepoTags) != 2 {
		t.Errorf("manifest %+v, %v", m, err)
	}
	if _, err := tarball.ImageFromPath(path, nil); err != nil {
		t.Error(err)
	}
}

func TestSaveFails(t *testing.T) {
	s, _ := openStore(t, "run")
	img := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:1", "one"), "")
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(kept, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, image, path, format string
		want                      error
	}{
		{what: "no such image", image: "nosuch", path: kept, format: "docker-archive", want: ErrNotFound},
		{what: "unknown format", image: img.ID, path: kept, format: "zip", want: ErrInvalid},
		{what: "no directory", image: img.ID, path: "/nonexistent/x.tar", format: "oci-archive", want: os.ErrNotExist},
	} {
		if err := s.Save(testContext(t), tc.image, tc.path, tc.format); !errors.Is(err, tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
	// A disk without a file system.
	if err := os.Truncate(s.path(img.ID, diskFile), 100); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(testContext(t), img.ID, kept, "docker-archive"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a damaged disk: %v", err)
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "old" {
		t.Errorf("the file that was there: %q, %v", data, err)
	}
	if left, err := os.ReadDir(filepath.Dir(kept)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
