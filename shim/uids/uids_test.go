package uids_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bulkhead-project/bulkhead/shim/uids"
)

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
				t.Errorf("%s got %d, which is %q's", id, uid, seen[uid])
			}
			seen[uid] = id
		})
	}
	wg.Wait()
	for uid, id := range seen {
		if again, err := uids.Reserve(dir, id); err != nil || again != uid {
			t.Errorf("%s had %d and got %d, %v", id, uid, again, err)
		}
		if err := uids.Release(dir, "another", uid); err != nil {
			t.Error(err)
		}
	}
	if held, err := uids.List(dir); err != nil || len(held) != 100 {
		t.Errorf("%d numbers held, %v", len(held), err)
	}
	for uid, id := range seen {
		for range 2 {
			if err := uids.Release(dir, id, uid); err != nil {
				t.Error(err)
			}
		}
	}
	if held, err := uids.List(dir); err != nil || len(held) != 0 {
		t.Errorf("left: %v, %v", held, err)
	}
}

// What a pod has is given back by its id alone, the draft of a reservation that
// was cut off included.
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
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != fmt.Sprint(others) {
		t.Errorf("left beside %d, without %d: %v, %v", others, mine, entries, err)
	}
}
