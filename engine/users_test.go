package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// Root's engines lease users in one place, whatever their own directories are. The end of a pod kills all processes
// of its user.
func TestUsersAreTheHosts(t *testing.T) {
	var first, second Options
	for _, o := range []*Options{&first, &second} {
		dir := t.TempDir()
		o.Roots = dirs.Roots{Data: filepath.Join(dir, "d"), State: filepath.Join(dir, "s")}
		if err := o.completeUsers(); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		if first.Users == second.Users {
			t.Errorf("ordinary users share %s", first.Users)
		}
		return
	}
	if first.Users != uids.Host || second.Users != uids.Host {
		t.Errorf("the engines lease users in %s and %s", first.Users, second.Users)
	}
}

// The leases of pods of an earlier version stay until the removal of the pods.
func TestUsersOfEarlierVersions(t *testing.T) {
	root := t.TempDir()
	old := filepath.Join(root, "d", "uids")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "1900000007"), []byte("pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Roots: dirs.Roots{Data: filepath.Join(root, "d")}, Users: filepath.Join(root, "host")}
	for range 2 {
		if err := o.completeUsers(); err != nil {
			t.Fatal(err)
		}
	}
	if held, err := uids.Held(o.Users, "pod"); err != nil || !slices.Equal(held, []int{1_900_000_007}) {
		t.Errorf("the pod holds %v, %v", held, err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the old leases are left: %v", err)
	}
}
