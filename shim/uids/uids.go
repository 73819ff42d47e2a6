// Package uids gives each pod of an engine that runs as root a user of its own,
// so that neither QEMU nor shim of one pod can touch another's.
//
// The users are the numbers First to First+Count-1. They lie above sssd's default
// range (200000 to 2000200000) and what useradd, subuid (from 100000) and systemd
// (61184 to 65519, 524288 to 1879048191) give away, and below 2^31, from which
// on programs take them for negative. A pod's group has the same number.
//
// A number is leased by making a file of its name in a directory that all engines
// of the host share, whatever their data and state directories are: a pod is
// ended by killing all that runs as its user. The file holds the pod's id. Leases
// end with the host's uptime, as do all processes and the state that belongs to
// pods' users.
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

// Host is the directory of the host's leases. It is root's.
const Host = "/run/bulkhead-uids"

// The range, and beside it the user of the pods' network.
const (
	First   = 2_100_000_000
	Count   = 65536
	Network = First + Count
)

// earlierFirst is the range that pods of earlier versions have, of the same
// length. It collides with sssd's, and no new pod gets a number of it.
const earlierFirst = 1_900_000_000

// ErrExhausted is returned when every number is leased.
var ErrExhausted = errors.New("all user numbers are leased")

// Reserve leases a number to the pod id, or finds the one that it has. The
// directory is made if it is missing; that of another user is refused.
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
	return 0, fmt.Errorf("reserve a user in %s: %w", dir, ErrExhausted)
}

// Held returns the numbers that the pod id has.
func Held(dir, id string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list users: %w", err)
	}
	var held []int
	for _, e := range entries {
		// Only the ranges: whatever else lies here, no other user is a pod's.
		if uid, err := strconv.Atoi(e.Name()); err == nil && isPods(uid) && holder(dir, uid) == id {
			held = append(held, uid)
		}
	}
	return held, nil
}

func isPods(uid int) bool {
	return uid >= First && uid < First+Count || uid >= earlierFirst && uid < earlierFirst+Count
}

// ReleaseAll gives back whatever id has, and what a crash in the middle of
// Reserve has left of it. It is idempotent.
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

// Migrate moves the leases that an engine of an earlier version kept in old, a
// directory of its own, to dir. A number that has another holder in dir, by
// another engine of an earlier version, stays that holder's alone: what runs as
// that user is no longer killed for the other one's sake. It is idempotent.
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

// drafted writes the file that leases of id are links to, until done is called.
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

// lease tells whether uid is id's, whose draft is there. A link is both exclusive
// and whole: a lease is never seen without its id.
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
