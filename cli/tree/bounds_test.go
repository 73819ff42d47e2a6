package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestLinksThroughLinks: a link that goes up after another link is left out, even if its names alone would stay in
// the tree.
func TestLinksThroughLinks(t *testing.T) {
	var left []string
	dir := t.TempDir()
	err := Unpack(archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "t"},
		tar.Header{Typeflag: tar.TypeDir, Name: "t/d"},
		tar.Header{Typeflag: tar.TypeDir, Name: "t/d/d"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "t/d/d/top", Linkname: "../.."},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "t/d/out", Linkname: "d/top/../beside"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "t/empty"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "t/long", Linkname: strings.Repeat("a/", maxName/2) + "a"},
	), dir, "t", func(text string) { left = append(left, text) })
	if err != nil {
		t.Error(err)
	}
	for i, name := range []string{"t/d/out", "t/empty", "t/long"} {
		if i >= len(left) || !strings.Contains(left[i], fmt.Sprintf("%q", name)) {
			t.Errorf("%s is not left out: %.300q", name, left)
		}
	}
	if got := kinds(t, dir); got["t/d/d/top"] != "l" || len(got) != 4 {
		t.Errorf("there is %v", got)
	}
}

// TestNotesAreBounded: a pod cannot flood a terminal with notes.
func TestNotesAreBounded(t *testing.T) {
	headers := []tar.Header{{Typeflag: tar.TypeDir, Name: "t"}}
	for i := range maxNotes + 10 {
		headers = append(headers, tar.Header{Typeflag: tar.TypeFifo, Name: fmt.Sprintf("t/%d", i)})
	}
	var notes []string
	if err := Unpack(archive(t, headers...), t.TempDir(), "t", func(text string) { notes = append(notes, text) }); err != nil {
		t.Error(err)
	}
	if len(notes) != maxNotes+1 || !strings.Contains(notes[maxNotes], "more") {
		t.Errorf("%d notes", len(notes))
	}
}

// TestAllTogether bounds the total size of all files.
func TestAllTogether(t *testing.T) {
	for _, tc := range []struct {
		name    string
		second  int64
		hostile bool
	}{
		{name: "as much as there may be", second: MaxBytes - 1},
		{name: "a byte more", second: MaxBytes, hostile: true},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := errors.Join(
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "t", Mode: 0o700}),
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "t/a", Size: 1, Mode: 0o600}), justWrite(w, "a"),
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "t/b", Size: tc.second, Mode: 0o600}),
		); err != nil {
			t.Fatal(err)
		}
		// The second file is truncated, which is another error.
		if err := Unpack(&b, t.TempDir(), "t", unnoted(t)); err == nil || errors.Is(err, ErrHostile) != tc.hostile {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func justWrite(w *tar.Writer, text string) error {
	_, err := w.Write([]byte(text))
	return err
}

// TestModes: every directory gets its mode, and files are packed with all their mode bits.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	if err := Unpack(archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "t", Mode: 0o710}, tar.Header{Typeflag: tar.TypeDir, Name: "t/d", Mode: 0o701},
		tar.Header{Typeflag: tar.TypeDir, Name: "t/d/e", Mode: 0o500}, tar.Header{Typeflag: tar.TypeDir, Name: "t/f", Mode: 0o705},
	), dir, "t", unnoted(t)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"t": 0o710, "t/d": 0o701, "t/d/e": 0o500, "t/f": 0o705} {
		if info, err := os.Stat(dir + "/" + name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, want %v", name, info.Mode(), want)
		}
	}
	for mode, want := range map[fs.FileMode]int64{0o755: 0o755, 0o4755: 0o755 | 0o4000, 0o2755: 0o755 | 0o2000, 0o1777: 0o777 | 0o1000} {
		path := t.TempDir() + "/file"
		bits := mode.Perm()
		for octal, bit := range map[fs.FileMode]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
			if mode&octal != 0 {
				bits |= bit
			}
		}
		var b bytes.Buffer
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, bits), Pack(&b, path, unnoted(t))); err != nil {
			t.Fatal(err)
		}
		h, err := tar.NewReader(&b).Next()
		if err != nil || h.Mode != want {
			t.Errorf("mode %o, want %o: %v", h.Mode, want, err)
		}
	}
}
