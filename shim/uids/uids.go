// Package uids gives each pod of an engine that runs as root a user of its own,
// so that neither QEMU nor shim of one pod can touch another's.
//
// The users are the numbers First to First+Count-1. They lie above sssd's default
// range (200000 to 2000200000) and what useradd, subuid (from 100000) and systemd
// (61184 to 65519, 524288 to 1879048191) give away, and below 2^31, from which
// on programs take them for negative. A pod's group has the same number. A number is taken by making a file
// of its name in a directory that all engines of the host share; the file holds
// the pod's id.
package uids

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
)

// The range, and beside it the user of the pods' network.
const (
	First   = 2_100_000_000
	Count   = 65536
	Network = First + Count
)

// ErrExhausted is returned when every number is taken.
var ErrExhausted = errors.New("no user number is free")

// Reserve takes a number for the pod id, or finds the one that it has. The
// directory is made, mode 0700, if it is missing.
func Reserve(dir, id string) (uid int, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("reserve a user: %w", err)
	}
	// Link is both exclusive and whole: a file is never seen without its id.
	draft := draft(dir, id)
	if err := os.WriteFile(draft, []byte(id), 0o600); err != nil {
		return 0, fmt.Errorf("reserve a user: %w", err)
	}
	defer os.Remove(draft)
	h := fnv.New32a()
	h.Write([]byte(id))
	start := int(h.Sum32() % Count)
	for i := range Count {
		uid := First + (start+i)%Count
		err := os.Link(draft, file(dir, uid))
		if err == nil || errors.Is(err, os.ErrExist) && holder(dir, uid) == id {
			return uid, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return 0, fmt.Errorf("reserve a user: %w", err)
		}
	}
	return 0, fmt.Errorf("reserve a user in %s: %w", dir, ErrExhausted)
}

// Release gives uid back, if it is id's. It is idempotent.
func Release(dir, id string, uid int) error {
	if uid < First || uid >= First+Count || holder(dir, uid) != id {
		return nil
	}
	if err := os.Remove(file(dir, uid)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release user %d: %w", uid, err)
	}
	return nil
}

// ReleaseAll gives back whatever id has, and what a crash in the middle of
// Reserve has left of it. It is idempotent.
func ReleaseAll(dir, id string) error {
	held, err := List(dir)
	if err != nil {
		return err
	}
	var errs []error
	for uid, holder := range held {
		if holder == id {
			errs = append(errs, Release(dir, id, uid))
		}
	}
	if err := os.Remove(draft(dir, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("release the users of %s: %w", id, err))
	}
	return errors.Join(errs...)
}

// List returns the pods that hold a number.
func List(dir string) (map[int]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list users: %w", err)
	}
	held := map[int]string{}
	for _, e := range entries {
		if uid, err := strconv.Atoi(e.Name()); err == nil {
			held[uid] = holder(dir, uid)
		}
	}
	return held, nil
}

func draft(dir, id string) string { return filepath.Join(dir, ".draft-"+id) }

func file(dir string, uid int) string { return filepath.Join(dir, strconv.Itoa(uid)) }

func holder(dir string, uid int) string {
	b, _ := os.ReadFile(file(dir, uid))
	return string(b)
}
