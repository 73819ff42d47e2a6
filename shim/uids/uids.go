// Package uids assigns a user to each pod of an engine that runs as root, so that QEMU and shim of one pod cannot touch
// another's.
//
// The users are the numbers First to First+Count-1. They lie above sssd's default range (200000 to 2000200000) and the
// ranges of useradd, subuid (from 100000) and systemd (61184 to 65519, 524288 to 1879048191). They lie below 2^31,
// because programs take larger numbers for negative. A pod's group has the same number.
//
// A lease of a number is a file of that name in a directory that all engines of the host share, whatever their data and
// state directories. They must share it because a pod is ended by killing all processes of its user. The file holds the
// pod's id. Leases end with the host's uptime, like all processes and state of the pods' users.
package uids

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// Host is the directory of the host's leases. Root owns it.
const Host = "/run/bulkhead-uids"

// The range, and the user of the pods' network.
const (
	First   = 2_100_000_000
	Count   = 65536
	Network = First + Count
)

// earlierFirst starts the range of earlier versions, of the same length. It collides with sssd's, so new pods get no
// number of it.
const earlierFirst = 1_900_000_000

// Reserve leases a number to the pod id, or returns the one that it already has. It creates the directory if it is
// missing, and refuses one of another user.
func Reserve(dir, id string) (uid int, err error) {
	done, err := drafted(dir, id)
	if err != nil {
		return 0, err
	}
	defer done()
	h := fnv.New32a()
	h.Write([]byte(id))
	start := int(h.Sum32() % Count)
	for i := range Count {
		uid := First + (start+i)%Count
		held, err := lease(dir, id, uid)
		if err != nil {
			return 0, err
		}
		if held {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("reserve a user in %s: all user numbers are leased", dir)
}

// Held returns the numbers leased to the pod id.
func Held(dir, id string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list users: %w", err)
	}
	var held []int
	for _, e := range entries {
		// Check the ranges: whatever files lie here, no other user belongs to a pod.
		if uid, err := strconv.Atoi(e.Name()); err == nil && isPods(uid) && holder(dir, uid) == id {
			held = append(held, uid)
		}
	}
	return held, nil
}

func isPods(uid int) bool {
	return uid >= First && uid < First+Count || uid >= earlierFirst && uid < earlierFirst+Count
}

// ReleaseAll releases all leases of id, and removes what a crash during Reserve has left. It is idempotent.
func ReleaseAll(dir, id string) error {
	held, err := Held(dir, id)
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range held {
		errs = append(errs, remove(file(dir, uid)))
	}
	if err := errors.Join(append(errs, remove(draft(dir, id)))...); err != nil {
		return fmt.Errorf("release the users of %s: %w", id, err)
	}
	return nil
}

// Migrate moves the leases that an engine of an earlier version kept in old, its own directory, to dir. If dir has
// another holder of a number, from another engine of an earlier version, that holder keeps it. Processes of that user
// are then no longer killed for the other pod. Migrate is idempotent.
func Migrate(dir, old string) error {
	entries, err := os.ReadDir(old)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("migrate the users of %s: %w", old, err)
	}
	for _, e := range entries {
		uid, err := strconv.Atoi(e.Name())
		if err != nil || !isPods(uid) {
			continue
		}
		if id := holder(old, uid); id != "" {
			done, err := drafted(dir, id)
			if err != nil {
				return err
			}
			_, err = lease(dir, id, uid)
			done()
			if err != nil {
				return err
			}
		}
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("migrate the users of %s: %w", old, err)
	}
	return nil
}

// drafted writes the file to which leases of id are links. done removes it.
func drafted(dir, id string) (done func(), err error) {
	if err := dirs.Ensure(dir, 0o700); err != nil {
		return nil, fmt.Errorf("reserve a user: %w", err)
	}
	path := draft(dir, id)
	if err := os.WriteFile(path, []byte(id), 0o600); err != nil {
		return nil, fmt.Errorf("reserve a user: %w", err)
	}
	return func() { _ = remove(path) }, nil
}

// lease tries to lease uid to id, and reports whether id holds it. The draft of id must exist. A link is exclusive and
// atomic: a lease always contains its id.
func lease(dir, id string, uid int) (bool, error) {
	err := os.Link(draft(dir, id), file(dir, uid))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, os.ErrExist) {
		return false, fmt.Errorf("reserve a user: %w", err)
	}
	return holder(dir, uid) == id, nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func draft(dir, id string) string { return filepath.Join(dir, ".draft-"+id) }

func file(dir string, uid int) string { return filepath.Join(dir, strconv.Itoa(uid)) }

func holder(dir string, uid int) string {
	b, _ := os.ReadFile(file(dir, uid))
	return string(b)
}
