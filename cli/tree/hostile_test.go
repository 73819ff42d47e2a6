package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/test/testtree"
)

// archive creates a tar stream of headers. The content of a regular file is its name.
func archive(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o777
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, h.Name[:h.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestHostile unpacks streams of a pod that attacks its host. The directory beside the target must stay unchanged.
func TestHostile(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	folder := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name} }
	symlink := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
	}
	type files = map[string]string
	for _, tc := range []struct {
		name    string
		headers []tar.Header
		hostile bool   // refused with ErrHostile
		fails   string // refused with this message
		notes   int
		want    files // kinds by name
	}{
		{name: "a name that goes up", headers: []tar.Header{file("../beside/x")}, hostile: true},
		{name: "a name that goes up later", headers: []tar.Header{folder("t"), file("t/../../beside/x")}, hostile: true, want: files{"t": "d"}},
		{name: "an absolute name", headers: []tar.Header{file("/etc/x")}, hostile: true},
		{name: "up alone", headers: []tar.Header{folder("..")}, hostile: true},
		{name: "another tree", headers: []tar.Header{folder("t"), file("u")}, hostile: true, want: files{"t": "d"}},
		{name: "another file than was asked for", headers: []tar.Header{file(".bashrc")}, hostile: true},
		{name: "another directory than was asked for", headers: []tar.Header{folder(".ssh"), file(".ssh/authorized_keys")}, hostile: true},
		{name: "its contents instead of the directory", headers: []tar.Header{folder("."), file("./.bashrc")}, hostile: true},
		{name: "too deep", headers: []tar.Header{file(strings.Repeat("a/", maxDepth+2) + "x")}, hostile: true},
		{name: "nothing", hostile: true},
		{
			name:    "a link out, and through it",
			headers: []tar.Header{folder("t"), symlink("t/l", "../../beside"), file("t/l/x")},
			notes:   1,
			want:    files{"t": "d", "t/l": "d", "t/l/x": "f"},
		},
		{name: "an absolute link", headers: []tar.Header{folder("t"), symlink("t/l", "/etc/passwd")}, notes: 1, want: files{"t": "d"}},
		{name: "a link to the tree's neighbour", headers: []tar.Header{folder("t"), symlink("t/l", "../other")}, notes: 1, want: files{"t": "d"}},
		{
			name:    "links that lead out only together",
			headers: []tar.Header{folder("t"), folder("t/d"), symlink("t/d/l", ".."), symlink("t/e", "d/l/../../beside")},
			notes:   1,
			want:    files{"t": "d", "t/d": "d", "t/d/l": "l"},
		},
		{
			name:    "through a link that stays in",
			headers: []tar.Header{folder("t"), folder("t/d"), symlink("t/l", "d"), file("t/l/x")},
			fails:   "it is not a directory",
			want:    files{"t": "d", "t/d": "d", "t/l": "l"},
		},
		{
			name:    "a directory in a link's place",
			headers: []tar.Header{folder("t"), symlink("t/l", "d"), folder("t/l")},
			fails:   "it is not a directory",
			want:    files{"t": "d", "t/l": "l"},
		},
		{
			name:    "a file over a link",
			headers: []tar.Header{folder("t"), file("t/a"), symlink("t/l", "a"), file("t/l")},
			want:    files{"t": "d", "t/a": "f", "t/l": "f"},
		},
		{name: "a link alone", headers: []tar.Header{symlink("t", "beside")}, notes: 1},
		{
			name:    "another name of a file outside",
			headers: []tar.Header{folder("t"), link("t/x", "../beside/secret")},
			hostile: true,
			want:    files{"t": "d"},
		},
		{
			name:    "another name of an absolute file",
			headers: []tar.Header{folder("t"), link("t/x", "/etc/passwd")},
			hostile: true,
			want:    files{"t": "d"},
		},
		{
			name:    "another name of a link",
			headers: []tar.Header{folder("t"), symlink("t/l", "a"), link("t/x", "t/l")},
			hostile: true,
			want:    files{"t": "d", "t/l": "l"},
		},
		{
			name:    "another name of nothing",
			headers: []tar.Header{folder("t"), link("t/x", "t/none")},
			fails:   "no such file",
			want:    files{"t": "d"},
		},
		{name: "another name of itself", headers: []tar.Header{folder("t"), file("t/a"), link("t/a", "t/a")}, want: files{"t": "d", "t/a": "f"}},
		{
			name: "devices",
			headers: []tar.Header{
				folder("t"),
				{Typeflag: tar.TypeChar, Name: "t/c", Devmajor: 1, Devminor: 3},
				{Typeflag: tar.TypeBlock, Name: "t/b"},
				{Typeflag: tar.TypeFifo, Name: "t/p"},
			},
			notes: 3,
			want:  files{"t": "d"},
		},
		{name: "set-user-id", headers: []tar.Header{{Typeflag: tar.TypeReg, Name: "t", Mode: 0o6755}}, want: files{"t": "f"}},
		{
			name:    "a directory becomes a link, then gets its mode",
			headers: []tar.Header{folder("t"), folder("t/d"), symlink("t/d", "x")},
			fails:   "it is a directory",
			want:    files{"t": "d", "t/d": "d"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			in, beside := filepath.Join(top, "in"), filepath.Join(top, "beside")
			for _, d := range []string{in, beside} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(beside+"/secret", []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := testtree.List(t, beside)
			notes := 0
			err := Unpack(archive(t, tc.headers...), in, "t", func(string) { notes++ })
			switch {
			case tc.hostile && !errors.Is(err, ErrHostile),
				tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)),
				!tc.hostile && tc.fails == "" && err != nil:
				t.Errorf("error %v", err)
			}
			if notes != tc.notes {
				t.Errorf("%d notes, want %d", notes, tc.notes)
			}
			if diff := cmp.Diff(before, testtree.List(t, beside)); diff != "" {
				t.Errorf("the directory beside has changed: %s", diff)
			}
			if tc.want == nil {
				tc.want = files{}
			}
			if diff := cmp.Diff(tc.want, kinds(t, in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// kinds returns d, l or f for each file below dir. A file with mode bits beyond the nine permissions is an error.
func kinds(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	_ = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		name, _ := filepath.Rel(dir, file)
		info, _ := e.Info()
		switch {
		case info.IsDir():
			found[name] = "d"
		case info.Mode()&fs.ModeSymlink != 0:
			found[name] = "l"
		default:
			found[name] = "f"
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
		return nil
	})
	return found
}

// TestLinksThatWereThere unpacks over an existing tree with a link in it.
func TestLinksThatWereThere(t *testing.T) {
	top := t.TempDir()
	if err := errors.Join(os.MkdirAll(top+"/in/t", 0o755), os.Mkdir(top+"/beside", 0o755),
		os.Symlink("../../beside", top+"/in/t/l"), os.Symlink("../../beside/new", top+"/in/t/f")); err != nil {
		t.Fatal(err)
	}
	err := Unpack(archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "t/l/x"}), top+"/in", "t", unnoted(t))
	if err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("through a link: %v", err)
	}
	if err := Unpack(archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "t/f"}), top+"/in", "t", unnoted(t)); err != nil {
		t.Error(err)
	}
	if got := kinds(t, top+"/beside"); len(got) != 0 {
		t.Errorf("written through a link: %v", got)
	}
}
