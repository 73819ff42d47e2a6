package fsys_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// TestSame runs the same random operations on a share and on a directory of the host, by three users, and compares
// data, errors and attributes. BULKHEAD_TEST_SEED repeats a run.
func TestSame(t *testing.T) {
	t.Parallel()
	count := 3000
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		count = 200_000
	}
	for name, options := range map[string]fsys.Options{
		"roomy": {},
		// Nodes lose their descriptors all the time.
		"crowded": {Descriptors: 70},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			if s := os.Getenv("BULKHEAD_TEST_SEED"); s != "" {
				seed, _ = strconv.ParseUint(s, 10, 64)
			}
			mounted, host := share(t, options, fsys.Root{SetID: true})
			// Not the root itself, above which the two differ.
			compare(t, seed, count, filepath.Join(mounted, "x/top"), filepath.Join(t.TempDir(), "x/top"), filepath.Join(host, "x/top"))
		})
	}
}

func compare(t *testing.T, seed uint64, count int, mounted, plain, behind string) {
	t.Helper()
	for _, top := range []string{behind, plain} {
		if err := os.MkdirAll(top, 0o777); err != nil {
			t.Fatal(err)
		}
		for dir := top; filepath.Base(dir) != "001" && len(dir) > 5; dir = filepath.Dir(dir) {
			_ = os.Chmod(dir, 0o777)
		}
	}
	a, b := newSide(mounted), newSide(plain)
	defer a.close()
	defer b.close()
	g := generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	var last []string
	for i := range count {
		o := g.next()
		got, want := o.run(a), o.run(b)
		last = append(last, fmt.Sprintf("%d %s: %s", i, o.text, want))
		if got != want {
			t.Fatalf("seed %d, operation %d\n%s\nis %s\non the host it is %s\nbefore:\n%v",
				seed, i, o.text, got, want, lines(last[max(0, len(last)-25):]))
		}
		if i%1000 == 999 {
			sameTrees(t, seed, behind, plain)
		}
	}
	sameTrees(t, seed, behind, plain)
}

func lines(all []string) string {
	text := ""
	for _, line := range all {
		text += line + "\n"
	}
	return text
}

// sameTrees compares the files on the disk.
func sameTrees(t *testing.T, seed uint64, a, b string) {
	t.Helper()
	x, y := tree(t, a), tree(t, b)
	if !slices.Equal(x, y) {
		t.Fatalf("seed %d: shared\n%v\nhost\n%v", seed, lines(x), lines(y))
	}
}

func tree(t *testing.T, top string) []string {
	t.Helper()
	var all []string
	s := newSide(top)
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(top, path)
		line := name + " " + s.lstat(place{-1, name})
		if e.Type().IsRegular() {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			sum, err := contents(fd)
			_ = unix.Close(fd)
			line += outcome(err, sum)
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
