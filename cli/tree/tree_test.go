package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testtree"
)

// sample creates a directory "source" with one file of each kind.
func sample(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	for _, d := range []string{"empty", "sub/deep"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("n", 200)
	for name, content := range map[string]string{"a": "content\x00\xff", "sub/" + long: "long", "sub/deep/ü": "", "run": "#!"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	steps := []error{
		os.Chmod(filepath.Join(dir, "run"), 0o755),
		os.Symlink("../a", filepath.Join(dir, "sub/up")),
		os.Symlink("sub/deep", filepath.Join(dir, "down")),
		os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "sub/same")),
	}
	old := time.Unix(1_000_000_000, 0)
	for _, name := range []string{"a", "run", "sub/" + long, "sub/deep/ü", "sub/deep", "sub", "empty", "."} {
		steps = append(steps, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	steps = append(steps, os.Chmod(filepath.Join(dir, "empty"), 0o500))
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func unnoted(t *testing.T) func(string) {
	return func(text string) { t.Errorf("noted: %s", text) }
}

// TestRoundTrip copies a tree like cp -r: into an existing directory, to a new name, and only its contents.
func TestRoundTrip(t *testing.T) {
	source := sample(t)
	want := testtree.List(t, source)
	for _, tc := range []struct {
		name, source, target, at string
	}{
		{"into a directory", source, ".", "source"},
		{"as another", source, "other", "other"},
		{"with directories above", source, "x/y/z", "x/y/z"},
		{"the content into a directory", source + "/.", ".", "."},
		{"the content as another", source + "/.", "other", "other"},
		{"the directory above a directory", source + "/sub/..", ".", "."},
		{"the directory above as another", source + "/sub/../", "other", "other"},
	} {
		var stream bytes.Buffer
		if err := Pack(&stream, tc.source, unnoted(t)); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := Unpack(&stream, filepath.Join(dir, tc.target), agentv1.TreeBase(tc.source), unnoted(t)); err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if diff := cmp.Diff(want, testtree.List(t, filepath.Join(dir, tc.at))); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// TestPackStaysWithin: files that are swapped during the copy lead nowhere and block nothing.
func TestPackStaysWithin(t *testing.T) {
	base := t.TempDir()
	outside, source := filepath.Join(base, "outside"), filepath.Join(base, "source")
	err := errors.Join(os.MkdirAll(source+"/dir", 0o755), os.MkdirAll(outside, 0o755), os.WriteFile(source+"/dir/f", []byte("within"), 0o644),
		os.WriteFile(outside+"/f", []byte("secret"), 0o644), os.WriteFile(source+"/\xff", []byte("no UTF-8"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	pack := func(file string, info fs.FileInfo) (string, error) {
		root, err := os.OpenRoot(source)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		var stream bytes.Buffer
		p := &packer{tar: tar.NewWriter(&stream), root: root, base: "source", note: func(string) {}, links: map[[2]uint64]string{}}
		err = p.entry(file, info)
		return stream.String(), err
	}
	file, err1 := os.Lstat(source + "/dir/f")
	dir, err2 := os.Lstat(source + "/dir")
	if err := errors.Join(err1, err2, os.RemoveAll(source+"/dir"), os.Symlink(outside, source+"/dir")); err != nil {
		t.Fatal(err)
	}
	for name, info := range map[string]fs.FileInfo{"dir/f": file, "dir": dir} { // with the earlier file information
		if out, err := pack(name, info); err == nil || strings.Contains(out, "secret") {
			t.Errorf("%s: %v, %q", name, err, out)
		}
	}
	if err := errors.Join(os.Remove(source+"/dir"), syscall.Mkfifo(source+"/dir", 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := pack("dir", file); err != nil || out != "" {
		t.Errorf("a pipe in place of a file: %v, %q", err, out)
	}
	root, err := os.Lstat(source)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := pack(".", root); err != nil || !strings.Contains(out, "no UTF-8") {
		t.Errorf("a name that is not text: %v, %q", err, out)
	}
}

func TestFiles(t *testing.T) {
	source := filepath.Join(sample(t), "a")
	for _, tc := range []struct{ name, before, target, at string }{
		{"into a directory", "", ".", "a"},
		{"as a new file", "", "b", "b"},
		{"over a file", "b", "b", "b"},
		{"over a file in a directory", "a", ".", "a"},
	} {
		dir := t.TempDir()
		if tc.before != "" {
			if err := os.WriteFile(filepath.Join(dir, tc.before), []byte("before, and longer than what comes"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var stream bytes.Buffer
		if err := errors.Join(
			Pack(&stream, source, unnoted(t)),
			Unpack(&stream, filepath.Join(dir, tc.target), agentv1.TreeBase(source), unnoted(t)),
		); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := testtree.List(t, dir)[tc.at]; got != `-rw-r----- 1000000000000000000 "content\x00\xff"` {
			t.Errorf("%s: %s", tc.name, got)
		}
	}
	var stream bytes.Buffer
	if err := Pack(&stream, source, unnoted(t)); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(&stream, t.TempDir()+"/none/", "a", unnoted(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("to a directory that is not there: %v", err)
	}
	if err := Pack(io.Discard, "/no/such", unnoted(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestNoFiles copies to devices, pipes and links. They must not be replaced.
func TestNoFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, behind, link := dir+"/pipe", dir+"/behind", dir+"/link"
	if err := errors.Join(
		syscall.Mkfifo(pipe, 0o600),
		os.WriteFile(behind, []byte("longer than that"), 0o640),
		os.Symlink("behind", link),
	); err != nil {
		t.Fatal(err)
	}
	file := tar.Header{Typeflag: tar.TypeReg, Name: "t"}
	if err := Unpack(archive(t, file), pipe, "t", unnoted(t)); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("to a pipe without a reader: %v", err)
	}
	if err := Pack(io.Discard, pipe, unnoted(t)); !errors.Is(err, errNoTree) {
		t.Errorf("a pipe is packed: %v", err)
	}
	if err := Unpack(archive(t, tar.Header{Typeflag: tar.TypeFifo, Name: "t"}), dir+"/new", "t", unnoted(t)); !errors.Is(err, errNoTree) {
		t.Errorf("a pipe comes: %v", err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, target := range []string{pipe, "/proc/self/fd/" + strconv.Itoa(int(reader.Fd())), link} {
		if err := Unpack(archive(t, file), target, "t", unnoted(t)); err != nil {
			t.Errorf("to %s: %v", target, err)
		}
	}
	if got := make([]byte, 2); read(t, reader, got) != "tt" {
		t.Errorf("the pipe's reader got %q", got)
	}
	if got, err := os.ReadFile(behind); string(got) != "t" {
		t.Errorf("behind the link is %q, %v", got, err)
	}
	tree := []tar.Header{{Typeflag: tar.TypeDir, Name: "t"}, {Typeflag: tar.TypeReg, Name: "t/pipe"}}
	for _, target := range []string{pipe, dir} {
		base := tree
		if target == dir {
			base = []tar.Header{{Typeflag: tar.TypeReg, Name: "pipe"}}
		}
		err := Unpack(archive(t, base...), target, strings.Split(base[0].Name, "/")[0], unnoted(t))
		if err == nil || !strings.Contains(err.Error(), "is in the way") {
			t.Errorf("a tree over a pipe, at %s: %v", target, err)
		}
	}
	for path, want := range map[string]fs.FileMode{pipe: fs.ModeNamedPipe, link: fs.ModeSymlink} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != want {
			t.Errorf("%s is now %v, %v", path, info, err)
		}
	}
}

func read(t *testing.T, r io.Reader, b []byte) string {
	t.Helper()
	if _, err := io.ReadFull(r, b); err != nil {
		t.Error(err)
	}
	return string(b)
}

// TestBroken truncates and damages a stream at every position. The carrier must report an incomplete stream,
// because a stream truncated between files looks like a shorter tree.
func TestBroken(t *testing.T) {
	var whole bytes.Buffer
	if err := Pack(&whole, sample(t), unnoted(t)); err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < whole.Len()-2048; cut += 97 {
		dir := t.TempDir()
		err := Unpack(bytes.NewReader(whole.Bytes()[:cut]), dir+"/x", "source", func(string) {})
		if content, missing := os.ReadFile(dir + "/x/a"); err == nil && missing == nil && string(content) != "content\x00\xff" {
			t.Errorf("cut at %d: %q", cut, content)
		}
	}
	for at := 0; at < whole.Len(); at += 61 {
		b := bytes.Clone(whole.Bytes())
		b[at] ^= 0xff
		_ = Unpack(bytes.NewReader(b), t.TempDir(), "source", func(string) {}) // any result but a panic or an escape
	}
	if err := Unpack(io.LimitReader(zeros{}, 1<<20), t.TempDir(), "source", func(string) {}); err == nil {
		t.Error("zeros are a tree")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestTooMuch(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: MaxBytes + 1, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Unpack(&b, dir, "t", unnoted(t)); !errors.Is(err, ErrHostile) || len(kinds(t, dir)) != 0 {
		t.Errorf("%v, %v", err, kinds(t, dir))
	}
}

// TestPackOfTheKernel: a file with a wrong size is copied with its content, and a directory of such files is
// refused.
func TestPackOfTheKernel(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	target := filepath.Join(t.TempDir(), "version")
	if err := errors.Join(Pack(&stream, "/proc/version", unnoted(t)), Unpack(&stream, target, "version", unnoted(t))); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(target); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, %q", err, got)
	}
	err = Pack(io.Discard, "/proc", unnoted(t))
	if err == nil || !strings.Contains(err.Error(), "copy /proc: its files are the kernel's") {
		t.Errorf("a directory: %v", err)
	}
}
