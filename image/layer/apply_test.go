package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func sortStrings(s []string) { slices.Sort(s) }

func file(name, body string) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, body}
}

func dir(name string) member {
	return member{h: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func link(name, to string) member {
	return member{h: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o644}}
}

func symlink(name, to string) member {
	return member{h: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}}
}

func special(kind byte, name string, major, minor int64) member {
	return member{h: tar.Header{Typeflag: kind, Name: name, Mode: 0o620, Devmajor: major, Devminor: minor}}
}

func with(m member, edit func(*tar.Header)) member {
	edit(&m.h)
	return m
}

func pax(m member, records ...string) member {
	return with(m, func(h *tar.Header) {
		h.PAXRecords = map[string]string{}
		for i := 0; i < len(records); i += 2 {
			h.PAXRecords[records[i]] = records[i+1]
		}
	})
}

// fileCap is cap_net_raw+ep in the form of setcap.
const fileCap = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

var rootDir = dir("./")

// layerCases are images for which the disk and GNU tar must agree, entry by entry.
var layerCases = map[string][][]member{
	"kinds": {{
		rootDir, dir("d"), file("d/f", "hello"), file("d/empty", ""), symlink("d/l", "f"), special(tar.TypeFifo, "d/p", 0, 0),
		special(tar.TypeChar, "d/null", 1, 3), special(tar.TypeBlock, "d/disk", 259, 70000),
	}},
	"modes and owners": {{
		rootDir, with(file("su", "x"), func(h *tar.Header) { h.Mode = 0o4755 }), with(file("sg", "x"), func(h *tar.Header) { h.Mode = 0o2755 }),
		with(dir("tmp"), func(h *tar.Header) { h.Mode = 0o1777 }), with(file("none", "x"), func(h *tar.Header) { h.Mode = 0 }),
		with(file("big", "x"), func(h *tar.Header) { h.Uid, h.Gid = 4294967294, 2000000000 }),
		with(symlink("owned", "su"), func(h *tar.Header) { h.Uid, h.Gid = 1000, 65536 }),
	}},
	"times": {{
		rootDir, with(file("old", "x"), func(h *tar.Header) { h.ModTime, h.Format = time.Unix(-1000, 0), tar.FormatPAX }),
		with(file("future", "x"), func(h *tar.Header) { h.ModTime, h.Format = time.Unix(5e9, 123456789), tar.FormatPAX }),
		with(symlink("l", "old"), func(h *tar.Header) { h.ModTime = time.Unix(1, 0) }),
	}},
	"attributes": {{
		rootDir, pax(file("cap", "x"), "SCHILY.xattr.security.capability", fileCap),
		pax(file("user", "x"), "SCHILY.xattr.user.a", "1", "SCHILY.xattr.user.long."+strings.Repeat("n", 200), strings.Repeat("v", 3000)),
		pax(dir("d"), "SCHILY.xattr.user.dir", "\x00\xff"),
		pax(file("inline", strings.Repeat("i", 3000)), "SCHILY.xattr.user.b", strings.Repeat("w", 1500)),
	}, {pax(file("later", "y"), "SCHILY.xattr.trusted.t", "z"), file("cap", "without")}},
	"names": {{
		rootDir, file("new\nline", "1"), file("bad\xff\xfeutf8", "2"), file("-dash", "3"), file("a b\t", "4"), file("!", "before dot"),
		file(strings.Repeat("n", 255), "5"), symlink("s", "odd \xff target/../..//x\n"), symlink("t", strings.Repeat("x/", 2000)+"y"),
		file("deep/"+strings.Repeat("d/", 200)+"f", "6"), file("ünïcode", "7"),
	}},
	"whiteouts": {
		{rootDir, dir("d"), file("d/a", "1"), file("d/b", "2"), dir("d/sub"), file("d/sub/x", "3"), symlink("d/l", "a"), file("keep", "k")},
		{file("d/.wh.a", ""), file("d/.wh.sub", ""), file("d/.wh.l", ""), file("d/.wh.nothing", "")},
		{file("d/a", "again"), file(".wh.keep", "")},
	},
	"opaque": {
		{rootDir, dir("d"), file("d/a", "1"), dir("d/sub"), file("d/sub/x", "2"), file("other", "o")},
		{dir("d"), file("d/.wh..wh..opq", ""), file("d/new", "3"), dir("d/sub"), file("d/sub/y", "4")},
	},
	"file and directory change places": {
		{rootDir, dir("a"), file("a/x", "1"), file("b", "2"), symlink("c", "a"), dir("e"), file("e/f", "5")},
		{file("a", "now a file"), dir("b"), file("b/y", "3"), file("c", "was a link"), symlink("e", "b")},
	},
	"through symbolic links": {
		{rootDir, dir("usr"), dir("usr/lib"), symlink("lib", "usr/lib"), symlink("abs", "usr/lib"), file("usr/lib/a", "1")},
		{file("lib/b", "2"), file("abs/c", "3"), file("lib/.wh.a", "")},
	},
	"hard links": {
		{
			rootDir, file("one", strings.Repeat("h", 9000)), link("two", "one"), dir("d"), link("d/three", "two"),
			symlink("s", "one"), link("s2", "s"),
		},
		{link("four", "d/three"), file("one", "changed")},
		{file("d/.wh.three", ""), file("small", "s"), link("small2", "./small")},
	},
	"many entries": {many(3000)},
	"sizes": {{
		rootDir, file("0", ""), file("1", "x"), file("3072", strings.Repeat("a", 3072)), file("3073", strings.Repeat("b", 3073)),
		file("4095", strings.Repeat("c", 4095)), file("4096", strings.Repeat("d", 4096)), file("4097", strings.Repeat("e", 4097)),
		file("65536", strings.Repeat("f", 65536)), file("big", strings.Repeat("0123456789abcdef", 200000)),
	}},
	"sparse": {{
		rootDir, file("zeros", strings.Repeat("\x00", 5<<20)), file("end", "x"+strings.Repeat("\x00", 3<<20)+"y"),
		file("middle", strings.Repeat("\x00", 200000)+strings.Repeat("m", 100000)+strings.Repeat("\x00", 1<<20)),
		file("odd", strings.Repeat("z", 70000)+strings.Repeat("\x00", 140000)), file("short", strings.Repeat("\x00", 3500)),
	}},
}

func many(n int) []member {
	out := []member{rootDir, dir("dir")}
	for i := range n {
		out = append(out, file(fmt.Sprintf("dir/%05d-%s", i, strings.Repeat("x", i%60)), fmt.Sprint(i)))
	}
	return out
}

func TestApply(t *testing.T) {
	for name, members := range layerCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var layers [][]byte
			for _, m := range members {
				layers = append(layers, archive(t, m...))
			}
			disk, err := build(t, DefaultLimits, layers...)
			if err != nil {
				t.Fatal(err)
			}
			got, want := list(t, mount(t, disk)), list(t, unpack(t, layers...))
			ignoreImplied(got, want, members)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("tar (-) and disk (+) differ:\n%s", diff)
			}
		})
	}
}

// ignoreImplied drops what tar does not define: the times of directories that later members or layers changed.
func ignoreImplied(got, want map[string]string, _ [][]member) {
	for _, m := range []map[string]string{got, want} {
		for name, line := range m {
			if strings.HasPrefix(line, "mode=4") {
				fields := strings.Fields(line)
				m[name] = strings.Join(slices.DeleteFunc(fields, func(f string) bool { return strings.HasPrefix(f, "mtime=") }), " ")
			}
		}
	}
}

func TestSparseTakesNoRoom(t *testing.T) {
	disk, err := build(t, DefaultLimits, archive(t, file("zeros", strings.Repeat("\x00", 32<<20))))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(disk)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 1<<20 {
		t.Errorf("32 MiB of zeros take %d bytes", info.Size())
	}
}

// TestReplacedTakesNoRoom: a large file that a later layer deletes leaves a hole.
func TestReplacedTakesNoRoom(t *testing.T) {
	disk, err := build(t, DefaultLimits, archive(t, file("big", strings.Repeat("x", 8<<20))), archive(t, file(".wh.big", "")))
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(disk, &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 1<<20 {
		t.Errorf("takes %d bytes", st.Blocks*512)
	}
}

func TestApplyConfined(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	disk, err := build(t, DefaultLimits, archive(t,
		file("../../"+outside, "1"), file("/abs", "2"), symlink("up", "../../../.."), file("up/here", "3"),
		symlink("etc", "/conf"), file("etc/inside", "4"), link("linked", "../../abs"), file("a/../b", "5")))
	if err != nil {
		t.Fatal(err)
	}
	got := list(t, mount(t, disk))
	for _, name := range []string{"abs", "here", "linked", "b", "etc", "conf/inside", strings.TrimPrefix(outside, "/")} {
		if got[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a layer wrote outside")
	}
}

// limits returns the default limits with the changes of edit.
func limits(edit func(*Limits)) Limits {
	l := DefaultLimits
	edit(&l)
	return l
}

// mazes are small layers with entries that each cost a walk of thousands of names: through 250 links of 2,000
// components, down a path of the greatest depth, and by emptying a large directory again and again.
var mazes = map[string]func() []member{
	"links": func() []member {
		members := []member{symlink("l0", ".")}
		for i := 1; i < 250; i++ {
			members = append(members, symlink(fmt.Sprint("l", i), strings.Repeat("./", 2000)+fmt.Sprint("l", i-1)))
		}
		return append(members, repeat(8, func(i int) member { return file(fmt.Sprint("l249/f", i), "") })...)
	},
	"hard links": func() []member {
		members := []member{file("f", "x"), symlink("l0", ".")}
		for i := 1; i < 250; i++ {
			members = append(members, symlink(fmt.Sprint("l", i), strings.Repeat("./", 2000)+fmt.Sprint("l", i-1)))
		}
		return append(members, repeat(8, func(i int) member { return link(fmt.Sprint("h", i), "l249/f") })...)
	},
	"opaque markers": func() []member {
		members := repeat(2000, func(i int) member { return file(fmt.Sprint("d/", i), "") })
		return append(members, repeat(2000, func(int) member { return file("d/.wh..wh..opq", "") })...)
	},
}

func repeat(n int, entry func(i int) member) (out []member) {
	for i := range n {
		out = append(out, entry(i))
	}
	return out
}

// TestApplyMaze: the total cost of an image's entries is bounded. The test uses a fraction of the real bound, which
// would take seconds to reach.
func TestApplyMaze(t *testing.T) {
	for name, members := range mazes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := build(t, limits(func(l *Limits) { l.Steps /= 64 }), archive(t, members()...))
			if !errors.Is(err, ErrHostile) || !strings.Contains(err.Error(), "steps") {
				t.Errorf("got %v, want a refusal by the number of steps", err)
			}
		})
	}
}

// TestApplySteps: an image of usual size is far from the bound.
func TestApplySteps(t *testing.T) {
	members := []member{symlink("lib", "usr/lib"), dir("usr/lib")}
	members = append(members, repeat(5000, func(i int) member { return file(fmt.Sprintf("lib/a/b/c/d/e/f/g/%d/%d", i%50, i), "") })...)
	scaled := limits(func(l *Limits) { l.Steps = l.Steps / l.Entries * len(members) })
	if _, err := build(t, scaled, archive(t, members...)); err != nil {
		t.Error(err)
	}
}

func TestApplyHostile(t *testing.T) {
	for name, tc := range map[string]struct {
		limits  Limits
		members []member
		raw     []byte
	}{
		"too many entries": {
			limits:  limits(func(l *Limits) { l.Entries = 3 }),
			members: []member{file("a", ""), file("b", ""), file("c", ""), file("d", "")},
		},
		"too much metadata": {
			limits:  limits(func(l *Limits) { l.Metadata = 2000 }),
			members: []member{file(strings.Repeat("n", 250), ""), file(strings.Repeat("m", 250), ""), symlink("s", strings.Repeat("t", 2000))},
		},
		"too much content": {
			limits:  limits(func(l *Limits) { l.Content = 1000 }),
			members: []member{file("a", strings.Repeat("x", 600)), file("b", strings.Repeat("x", 600))},
		},
		"too long a stream":      {limits: limits(func(l *Limits) { l.Stream = 1500 }), members: []member{file("a", strings.Repeat("x", 5000))}},
		"long name":              {limits: DefaultLimits, members: []member{file(strings.Repeat("n", 256), "")}},
		"long path":              {limits: DefaultLimits, members: []member{file(strings.Repeat("n/", 3000)+"f", "")}},
		"link to nothing":        {limits: DefaultLimits, members: []member{link("l", "nothing")}},
		"link to a directory":    {limits: DefaultLimits, members: []member{dir("d"), link("l", "d")}},
		"link to itself":         {limits: DefaultLimits, members: []member{link("l", "l")}},
		"root is a file":         {limits: DefaultLimits, members: []member{symlink("./", "/etc")}},
		"file on the way":        {limits: DefaultLimits, members: []member{file("f", ""), file("f/x", "")}},
		"symbolic links in ring": {limits: DefaultLimits, members: []member{symlink("a", "b"), symlink("b", "a"), file("a/x", "")}},
		"deep by symbolic links": {
			limits:  DefaultLimits,
			members: []member{symlink("m", strings.Repeat("b/", 1500)), symlink("m/m", strings.Repeat("b/", 1500)), file("m/m/x", "")},
		},
		"whiteout of dot":     {limits: DefaultLimits, members: []member{file(".wh..", "")}},
		"whiteout of dot dot": {limits: DefaultLimits, members: []member{file("d/.wh...", "")}},
		"whiteout of nothing": {limits: DefaultLimits, members: []member{file(".wh.", "")}},
		"device out of range": {limits: DefaultLimits, members: []member{special(tar.TypeChar, "c", 5000, 1)}},
		"not a tar":           {limits: DefaultLimits, raw: []byte(strings.Repeat("garbage ", 200))},
	} {
		t.Run(name, func(t *testing.T) {
			raw := tc.raw
			if raw == nil {
				raw = archive(t, tc.members...)
			}
			_, err := build(t, tc.limits, raw)
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one line", err)
			}
			if !errors.Is(err, ErrHostile) && name != "device out of range" {
				t.Errorf("got %v", err)
			}
		})
	}
}
