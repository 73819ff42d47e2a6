package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// TestNamesAreExclusive checks that a name belongs to one pod until that pod releases it.
func TestNamesAreExclusive(t *testing.T) {
	_, stores := open(t, "one", "two")
	s, first, second := stores[0], NewID(), NewID()
	key := strings.Repeat("long/", 100) + "\x00"
	if err := s.Reserve(key, first); err != nil {
		t.Fatal(err)
	}
	var taken *ReservedError
	if err := s.Reserve(key, second); !errors.Is(err, errdefs.ErrAlreadyExists) || !errors.As(err, &taken) ||
		taken.ID != first || taken.Key != key {
		t.Errorf("twice: %v", err)
	} else if !strings.Contains(err.Error(), first) {
		t.Errorf("the error does not name the pod: %v", err)
	}
	if err := stores[1].Reserve(key, second); err != nil {
		t.Errorf("in another instance: %v", err)
	}
	if err := s.Release(key, second); err != nil {
		t.Errorf("by another: %v", err)
	}
	if names, err := s.Names(); err != nil || !slices.Equal(names, []Name{{ID: first, Key: key}}) {
		t.Errorf("%v, %v", names, err)
	}
	for range 2 { // the second time it is free
		if err := s.Release(key, first); err != nil {
			t.Errorf("by its holder: %v", err)
		}
	}
	if err := s.Reserve(key, second); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// TestDamagedNames checks that a damaged name is reserved until it is released or listed, and that Names removes
// the files of a crashed Reserve.
func TestDamagedNames(t *testing.T) {
	_, stores := open(t, "one")
	s, id := stores[0], NewID()
	overwrite(t, s.namePath("a"), "{")
	if err := s.Reserve("a", id); !errors.Is(err, errdefs.ErrAlreadyExists) || !errors.Is(err, atomicfile.ErrCorrupt) {
		t.Errorf("reserve: %v", err)
	}
	if err := s.Release("a", id); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := s.Reserve("a", id); err != nil {
		t.Errorf("reserve after that: %v", err)
	}
	overwrite(t, s.namePath("b"), "{")
	overwrite(t, s.namePath("c"), `{"id":"nobody","key":"c"}`)
	overwrite(t, filepath.Join(s.names(), "."+NewID()), "{")
	if names, err := s.Names(); err != nil || !slices.Equal(names, []Name{{ID: id, Key: "a"}}) {
		t.Errorf("%v, %v", names, err)
	}
	entries, err := os.ReadDir(s.names())
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestNamesWithoutADirectory checks that I/O errors are returned and never mistaken for a free name.
func TestNamesWithoutADirectory(t *testing.T) {
	_, stores := open(t, "one")
	s, id := stores[0], NewID()
	if err := os.Remove(s.names()); err != nil {
		t.Fatal(err)
	}
	if err := s.Reserve("a", id); err == nil || errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("reserve: %v", err)
	}
	if _, err := s.Names(); err == nil {
		t.Error("the names of no directory")
	}
	if s.owns(id) {
		t.Error("the name belongs to no pod")
	}
	overwrite(t, s.names(), "")
	if err := s.Release("a", id); err == nil {
		t.Error("released although its pod is unknown")
	}
}

// TestNamesReleasedMeanwhile checks that Names succeeds despite a concurrent release.
func TestNamesReleasedMeanwhile(t *testing.T) {
	_, stores := open(t, "one")
	s, id := stores[0], NewID()
	key := func(i int) string { return strings.Repeat("k", i+1) }
	const many = 200
	for i := range many {
		if err := s.Reserve(key(i), id); err != nil {
			t.Fatal(err)
		}
	}
	released := make(chan error, 1)
	go func() {
		var errs []error
		for i := range many {
			errs = append(errs, s.Release(key(i), id))
		}
		released <- errors.Join(errs...)
	}()
	for left := many; left > 0; {
		names, err := s.Names()
		if err != nil {
			t.Error(err)
			break
		}
		left = len(names)
	}
	if err := <-released; err != nil {
		t.Error(err)
	}
}

// TestNamesBesideReserve checks that Names does not disturb a concurrent Reserve.
func TestNamesBesideReserve(t *testing.T) {
	_, stores := open(t, "one")
	s := stores[0]
	done := make(chan error)
	go func() {
		for range 500 {
			id := NewID()
			if err := s.Reserve(id, id); err != nil {
				done <- err
				return
			}
			if err := s.Release(id, id); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			if _, err := s.Names(); err != nil {
				t.Error(err)
			}
		}
	}
}
