package uids_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// names returns the names in the directory of the leases.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestReserve(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "uids")
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[int]string{}
	for i := range 100 {
		wg.Go(func() {
			id := fmt.Sprintf("pod-%d", i)
			uid, err := uids.Reserve(dir, id)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if uid < uids.First || uid >= uids.First+uids.Count || seen[uid] != "" {
				t.Errorf("%s got %d, which belongs to %q", id, uid, seen[uid])
			}
			seen[uid] = id
		})
	}
	wg.Wait()
	for uid, id := range seen {
		if again, err := uids.Reserve(dir, id); err != nil || again != uid {
			t.Errorf("%s had %d and got %d, %v", id, uid, again, err)
		}
		if held, err := uids.Held(dir, id); err != nil || !slices.Equal(held, []int{uid}) {
			t.Errorf("%s had %d and holds %v, %v", id, uid, held, err)
		}
	}
	if held, err := uids.Held(dir, "another"); err != nil || len(held) > 0 {
		t.Errorf("another holds %v, %v", held, err)
	}
	for _, id := range seen {
		for range 2 {
			if err := uids.ReleaseAll(dir, id); err != nil {
				t.Error(err)
			}
		}
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestReleaseAll: the release by a pod's id frees its numbers and the draft of an interrupted reservation, and no other
// pod's.
func TestReleaseAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "uids")
	for range 2 {
		if err := uids.ReleaseAll(dir, "pod"); err != nil {
			t.Errorf("without a directory: %v", err)
		}
	}
	mine, err := uids.Reserve(dir, "pod")
	if err != nil {
		t.Fatal(err)
	}
	others, err := uids.Reserve(dir, "another")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".draft-pod"), []byte("po"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := uids.ReleaseAll(dir, "pod"); err != nil {
		t.Fatal(err)
	}
	if left := names(t, dir); !slices.Equal(left, []string{strconv.Itoa(others)}) {
		t.Errorf("left beside %d, without %d: %v", others, mine, left)
	}
}

// TestHeldIsInTheRanges: numbers outside the ranges never belong to a pod, whatever lies in the directory, because all
// processes of a pod's user are killed.
func TestHeldIsInTheRanges(t *testing.T) {
	dir := t.TempDir()
	for uid, want := range map[int]bool{
		0: false, 1000: false, 65534: false, -1: false, uids.First - 1: false, uids.First: true, uids.First + uids.Count - 1: true,
		uids.Network: false, 1_899_999_999: false, 1_900_000_000: true, 1_900_065_535: true, 1_900_065_536: false, 1<<32 - 1: false,
	} {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(uid)), []byte("pod"), 0o600); err != nil {
			t.Fatal(err)
		}
		held, err := uids.Held(dir, "pod")
		if err != nil || slices.Contains(held, uid) != want {
			t.Errorf("%d: %v, %v", uid, held, err)
		}
	}
}

// TestRangeIsFree checks the documented ranges of other programs.
func TestRangeIsFree(t *testing.T) {
	last := uids.Network
	for name, taken := range map[string][2]int{
		"sssd": {200_000, 2_000_200_000}, "subuid": {100_000, 600_100_000}, "systemd": {524_288, 1_879_048_191},
		"DynamicUser": {61_184, 65_519}, "useradd": {1000, 60_000}, "negative": {1 << 31, 1<<32 - 1},
	} {
		if uids.First <= taken[1] && last >= taken[0] {
			t.Errorf("%d to %d lie in the range of %s: %v", uids.First, last, name, taken)
		}
	}
}

// TestMigrate: two engines of an earlier version had directories of their own and may have leased the same number.
func TestMigrate(t *testing.T) {
	root := t.TempDir()
	dir, first, second := filepath.Join(root, "host"), filepath.Join(root, "first"), filepath.Join(root, "second")
	write := func(dir string, uid int, id string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(uid)), []byte(id), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first, 1_900_000_001, "a")
	write(first, 1_900_000_002, "b")
	write(first, 0, "root")
	write(second, 1_900_000_002, "c")
	for range 2 {
		for _, old := range []string{first, second} {
			if err := uids.Migrate(dir, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id, want := range map[string][]int{"a": {1_900_000_001}, "b": {1_900_000_002}, "c": nil, "root": nil} {
		if held, err := uids.Held(dir, id); err != nil || !slices.Equal(held, want) {
			t.Errorf("%s holds %v, %v, want %v", id, held, err, want)
		}
	}
	if left := names(t, root); !slices.Equal(left, []string{"host"}) {
		t.Errorf("left: %v", left)
	}
	if err := uids.ReleaseAll(dir, "b"); err != nil {
		t.Fatal(err)
	}
	if left := names(t, dir); !slices.Equal(left, []string{"1900000001"}) {
		t.Errorf("left: %v", left)
	}
}

func TestForeignDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's directory")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if _, err := uids.Reserve(dir, "pod"); !errors.Is(err, dirs.ErrForeign) {
		t.Errorf("reserved in another user's directory: %v", err)
	}
}
