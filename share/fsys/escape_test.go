package fsys_test

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/fsystest"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// stranger owns the files outside of the share.
const stranger = 4242

// TestEscape: one pod replaces names by links and moves parents, while another one runs all operations below these
// names. Nothing outside of the share is visible or changes.
func TestEscape(t *testing.T) {
	t.Parallel()
	lasts := 3 * time.Second
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		lasts = 3 * time.Minute
	}
	base := t.TempDir()
	shared, outside := filepath.Join(base, "shared"), filepath.Join(base, "outside")
	for _, dir := range []string{shared, outside, outside + "/a", outside + "/a/b"} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"c", "d", "a/a", "a/b/a", "canary"} {
		if err := os.WriteFile(filepath.Join(outside, file), []byte("canary"), 0o4777); err != nil {
			t.Fatal(err)
		}
	}
	eachFile(t, outside, func(path string) { _ = os.Lchown(path, stranger, stranger) })
	before := snapshot(t, outside)
	top := fsystest.Mount(t, fsystest.Spec{
		Options: fsys.Options{Descriptors: 100},
		Roots:   []fsystest.Root{{Root: fsys.Root{Name: "shared", SetID: true}, Path: shared}},
	})

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var all sync.WaitGroup
	for i := range uint64(3) {
		all.Go(func() {
			g := generator{Rand: rand.New(rand.NewPCG(seed, i)), shared: true}
			s := newSide(filepath.Join(top, "shared"))
			defer s.close()
			for ctx.Err() == nil {
				o := g.next()
				said := strings.ReplaceAll(o.run(s), "outside/canary", "") // a link's target is not secret
				if strings.Contains(said, "canary") || strings.Contains(said, fmt.Sprintf("owner %d:", stranger)) {
					t.Errorf("%s has seen a file outside: %s", o.text, said)
					return
				}
			}
		})
	}
	dir, err := unix.Open(shared, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	swaps := 0
	all.Go(func() {
		g := generator{Rand: rand.New(rand.NewPCG(seed, 99))}
		for ; ctx.Err() == nil; swaps++ {
			swap(g, dir)
		}
	})
	all.Wait()
	if after := snapshot(t, outside); after != before {
		t.Errorf("outside of the shared directory was\n%s\nand is\n%s", before, after)
	}
	if swaps < 100 {
		t.Errorf("only %d swaps", swaps)
	}
}

// swap replaces a name in the share. It follows no links itself.
func swap(g generator, shared int) {
	path, depth := ".", 1
	for g.IntN(3) == 0 {
		path, depth = path+"/"+g.name(), depth+1
	}
	dir, err := unix.Openat2(shared, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return
	}
	defer unix.Close(dir)
	out := strings.Repeat("../", depth) + "outside"
	at, other := g.name(), g.name()
	switch g.IntN(6) {
	case 0, 1:
		const link = "link"
		if unix.Symlinkat(pick(g, out, out+"/a", out+"/c", out+"/canary"), dir, link) == nil {
			_ = unix.Renameat2(dir, link, dir, at, unix.RENAME_EXCHANGE)
			if unix.Renameat(dir, link, dir, at) != nil && unix.Unlinkat(dir, link, 0) != nil {
				_ = unix.Renameat(dir, link, shared, at)
			}
		}
	case 2:
		_ = unix.Renameat2(dir, at, dir, other, unix.RENAME_EXCHANGE)
	case 3:
		_ = unix.Renameat(dir, at, shared, other)
	case 4:
		_ = unix.Mkdirat(dir, at, 0o777)
	case 5:
		_ = unix.Unlinkat(dir, at, 0)
	}
}

func eachFile(t *testing.T, top string, do func(path string)) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			do(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot returns everything that the kernel reports of the files below top, including access times.
func snapshot(t *testing.T, top string) string {
	t.Helper()
	text := ""
	eachFile(t, top, func(path string) {
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		st.Blocks = 0
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			st.Atim = unix.Timespec{} // changed by this look
		}
		text += fmt.Sprintf("%s %+v %v\n", path, st, err)
	})
	return text
}
