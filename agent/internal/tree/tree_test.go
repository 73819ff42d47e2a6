package tree

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testtree"
)

// packed returns a tree in pack's encoding.
func packed(t *testing.T, root, name string) []byte {
	t.Helper()
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	place, err := InRoot(dir, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p := &packer{w: &b, links: map[fileID]string{}, buf: make([]byte, 7)} // so that files take several chunks
	if err := p.entry(place, agentv1.TreeBase(name), &st, 0); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpacked unpacks a tree to a path below root.
func unpacked(t *testing.T, root, name string, into bool, tree []byte) error {
	t.Helper()
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var b bytes.Buffer
	b.Write(tree)
	if err := agentv1.WriteEntry(&b, agentv1.Entry{Kind: agentv1.KindEnd}); err != nil {
		t.Fatal(err)
	}
	u := &unpacker{r: &b, owner: [2]int{os.Getuid(), os.Getgid()}}
	if err := u.destination(dir, agentv1.Unpack{Path: name, Into: into}); err != nil {
		return err
	}
	defer u.dest.Close()
	return u.run()
}

// entries returns the encoding of a tree; each file contains its own name.
func entries(t *testing.T, list ...agentv1.Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, e := range list {
		if e.Kind == agentv1.KindFile {
			e.Size = int64(len(e.Name))
		}
		if e.Mode == 0 {
			e.Mode = 0o755
		}
		if err := agentv1.WriteEntry(&b, e); err != nil {
			t.Fatal(err)
		}
		b.Write(e.Name[:e.Size])
	}
	return b.Bytes()
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestTreeRoundTrip(t *testing.T) {
	from := t.TempDir()
	old := time.Unix(1_000_000_000, 123_456_789)
	must(t,
		os.MkdirAll(from+"/t/sub/deep", 0o755), os.WriteFile(from+"/t/a", []byte("the content of a"), 0o640),
		os.WriteFile(from+"/t/sub/\xff\n", nil, 0o600), os.Symlink("../a", from+"/t/sub/l"), os.Symlink("/etc/passwd", from+"/t/abs"),
		os.Link(from+"/t/a", from+"/t/sub/same"), os.Chmod(from+"/t/a", 0o4750), os.Chtimes(from+"/t/a", old, old),
		os.Chtimes(from+"/t/sub/deep", old, old), os.Chtimes(from+"/t/sub", old, old), os.Chmod(from+"/t/sub", 0o500),
		unix.Mkfifo(from+"/t/pipe", 0o600), os.Symlink("t", from+"/link"),
	)
	want := testtree.List(t, from+"/t")
	delete(want, "pipe")
	for _, tc := range []struct{ source, target, at string }{
		{"/t", "/", "t"}, {"/t", "/as", "as"}, {"/t/.", "/", "."}, {"/t/.", "/as", "as"}, {"/link", "/", "link"},
		{"/t/sub/..", "/", "."}, {"/t/sub/..", "/as", "as"},
	} {
		to := t.TempDir()
		if err := unpacked(t, to, tc.target, false, packed(t, from, tc.source)); err != nil {
			t.Errorf("%s to %s: %v", tc.source, tc.target, err)
			continue
		}
		if diff := cmp.Diff(want, testtree.List(t, filepath.Join(to, tc.at))); diff != "" {
			t.Errorf("%s to %s: %s", tc.source, tc.target, diff)
		}
		same := [2]string{filepath.Join(to, tc.at, "a"), filepath.Join(to, tc.at, "sub/same")}
		one, err1 := os.Stat(same[0])
		two, err2 := os.Stat(same[1])
		if must(t, err1, err2); !os.SameFile(one, two) {
			t.Errorf("%s to %s: a hard link became two files", tc.source, tc.target)
		}
		// Repeat it over the existing files.
		if err := unpacked(t, to, tc.target, false, packed(t, from, tc.source)); err != nil && tc.target == "/" {
			t.Errorf("%s to %s again: %v", tc.source, tc.target, err)
		}
	}
}

// TestUnpackStays: unpacking never leaves the destination, whatever the container or the sender does.
func TestUnpackStays(t *testing.T) {
	file := func(name string) agentv1.Entry { return agentv1.Entry{Kind: agentv1.KindFile, Name: []byte(name)} }
	dir := func(name string) agentv1.Entry { return agentv1.Entry{Kind: agentv1.KindDir, Name: []byte(name)} }
	link := func(kind, name, to string) agentv1.Entry {
		return agentv1.Entry{Kind: kind, Name: []byte(name), Target: []byte(to)}
	}
	for _, tc := range []struct {
		name  string
		path  string
		list  []agentv1.Entry
		fails error
	}{
		{"a name that goes up", "/in", []agentv1.Entry{file("../x")}, errdefs.ErrInvalidArgument},
		{"an absolute name", "/in", []agentv1.Entry{file("/x")}, errdefs.ErrInvalidArgument},
		{"no name", "/in", []agentv1.Entry{file("")}, errdefs.ErrInvalidArgument},
		{"through a link that was there", "/in", []agentv1.Entry{file("out/x")}, errdefs.ErrInvalidArgument},
		{"through a link that came", "/in", []agentv1.Entry{link(agentv1.KindSymlink, "l", ".."), file("l/x")}, errdefs.ErrInvalidArgument},
		{"a directory over a link", "/in", []agentv1.Entry{dir("out")}, errdefs.ErrInvalidArgument},
		{"another name of a file outside", "/in", []agentv1.Entry{link(agentv1.KindLink, "x", "../beside/secret")}, errdefs.ErrInvalidArgument},
		{"another name through a link", "/in", []agentv1.Entry{link(agentv1.KindLink, "x", "out/secret")}, errdefs.ErrInvalidArgument},
		{"another kind", "/in", []agentv1.Entry{link("device", "x", "")}, errdefs.ErrInvalidArgument},
		{"too deep", "/in", []agentv1.Entry{file(strings.Repeat("a/", maxDepth+1) + "x")}, errdefs.ErrInvalidArgument},
		{"over a link to a file", "/in", []agentv1.Entry{file("file")}, nil},
		{"a link of the container's is followed within it", "/way/out", []agentv1.Entry{file("x")}, nil},
		{"up and away", "/in/../../../..", []agentv1.Entry{file("x")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			root := top + "/root"
			must(t, os.MkdirAll(root+"/in", 0o755), os.MkdirAll(root+"/way", 0o755), os.Mkdir(root+"/etc", 0o755), os.Mkdir(top+"/beside", 0o755),
				os.WriteFile(top+"/beside/secret", []byte("secret"), 0o600), os.Symlink("../../beside", root+"/in/out"),
				os.Symlink("../../beside/secret", root+"/in/file"), os.Symlink("/etc", root+"/way/out"))
			before := testtree.List(t, top+"/beside")
			err := unpacked(t, root, tc.path, true, entries(t, tc.list...))
			if !errors.Is(err, tc.fails) || tc.fails == nil && err != nil {
				t.Errorf("error %v, want %v", err, tc.fails)
			}
			if diff := cmp.Diff(before, testtree.List(t, top+"/beside")); diff != "" {
				t.Errorf("the directory beside has changed: %s", diff)
			}
			if list := testtree.List(t, top); len(list) > 16 {
				t.Errorf("too much is there: %v", list)
			}
		})
	}
}

func TestUnpackDestinations(t *testing.T) {
	tree := entries(t, agentv1.Entry{Kind: agentv1.KindDir, Name: []byte("t")}, agentv1.Entry{Kind: agentv1.KindFile, Name: []byte("t/a")})
	for _, tc := range []struct {
		path, at string
		into     bool
		fails    bool
	}{
		{path: "/dir", at: "dir/t/a"},
		{path: "/dir/", at: "dir/t/a"},
		{path: "dir", at: "dir/t/a"},
		{path: "/new", at: "new/a"},
		{path: "/link", at: "dir/t/a"},
		{path: "/no/new", fails: true},
		{path: "/new/", fails: true},
		{path: "/new", into: true, fails: true},
		{path: "/file", fails: true},
		{path: "", fails: true},
		{path: "/dir/..", at: "t/a"},
	} {
		root := t.TempDir()
		must(t, os.Mkdir(root+"/dir", 0o755), os.WriteFile(root+"/file", nil, 0o600), os.Symlink("dir", root+"/link"))
		err := unpacked(t, root, tc.path, tc.into, tree)
		if (err != nil) != tc.fails {
			t.Errorf("%q: %v", tc.path, err)
		}
		if !tc.fails {
			if content, err := os.ReadFile(filepath.Join(root, tc.at)); string(content) != "t/a" {
				t.Errorf("%q: %q, %v, %v", tc.path, content, err, testtree.List(t, root))
			}
		}
	}
}

// TestPackUntrueSizes: a file with a wrong size is sent with its real content, or the tree ends with an error.
func TestPackUntrueSizes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	version, err := os.ReadFile("/proc/version")
	must(t, err)
	to := t.TempDir()
	if err := unpacked(t, to, "/", false, packed(t, "/proc", "version")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to + "/version"); err != nil || !bytes.Equal(got, version) {
		t.Errorf("%v, %q", err, got)
	}
	const size = 100 << 10
	for name, now := range map[string]int64{"grown": 2 * size, "shorter": size / 2} {
		must(t, os.WriteFile(root+"/"+name, bytes.Repeat([]byte("x"), size), 0o600))
		dir, err := os.Open(root)
		must(t, err)
		place, err := InRoot(dir, name, 0)
		var st unix.Stat_t
		must(t, err, unix.Fstat(int(place.Fd()), &st), os.Truncate(root+"/"+name, now), dir.Close())
		var b bytes.Buffer
		p := &packer{w: &b, links: map[fileID]string{}, buf: make([]byte, 4096)}
		err = p.entry(place, name, &st, 0)
		place.Close()
		if err != nil || (p.lacking != nil) != (now < size) {
			t.Errorf("%s: %v, lacking: %v", name, err, p.lacking)
		}
		must(t, unpacked(t, to, "/", false, b.Bytes()))
		if info, err := os.Stat(to + "/" + name); err != nil || info.Size() != size {
			t.Errorf("%s: %v, or another size than at the beginning", name, err)
		}
	}
}
