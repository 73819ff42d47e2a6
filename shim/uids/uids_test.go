package uids_test

import (
	"fmt"
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
