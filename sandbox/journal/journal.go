// Package journal keeps, on disk, how to undo what an operation is about to
// do: before each side effect its undo is written, so that a process that
// finds the journal after a crash can clean up without knowing what the dead
// one was doing.
//
// A journal is a text file, one JSON entry a line, to which any process may
// append: each append is made under flock(2). What has been undone, or needs
// no undoing any more, is marked by another line.
package journal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/flock"
)

var (
	// ErrUnknownKind is returned by Undo for an entry without a handler. The
	// entry stays.
	ErrUnknownKind = errors.New("no handler for this kind of entry")
	// ErrPending is returned by Remove while something is left to undo.
	ErrPending = errors.New("journal has entries to undo")
	// ErrFull is returned by Before when the journal has grown past its bound.
	ErrFull = errors.New("journal is full")
)

// maxSize bounds a journal, in bytes: thousands of entries.
const maxSize = 4 << 20

// lockWait bounds the wait for another process's append.
const lockWait = 10 * time.Second

// Entry is an undo that is still to be done.
type Entry struct {
	ID   string          `json:"id"`
	Kind string          `json:"kind"` // what Undo finds its handler by
	Args json.RawMessage `json:"args,omitempty"`
	At   time.Time       `json:"at"`
}

// line is an entry or, with Done, the mark that it needs no undoing.
type line struct {
	Entry
	Done bool `json:"done,omitempty"`
}

// Journal is a journal's path. It holds nothing open and may be used at once
// by any number of goroutines and processes.
type Journal struct{ path string }

// At returns the journal at path. Nothing is made before the first entry.
func At(path string) Journal { return Journal{path} }

// Before writes how to undo what the caller does next, and returns the entry's
// id. Durable entries survive a power failure; what does not outlive the boot
// itself need not be.
func (j Journal) Before(ctx context.Context, kind string, args any, d atomicfile.Durability) (string, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return "", fmt.Errorf("journal %s: %w", kind, err)
	}
	e := Entry{ID: rand.Text(), Kind: kind, Args: raw, At: time.Now().UTC()}
	if err := j.append(ctx, line{Entry: e}, d); err != nil {
		return "", fmt.Errorf("journal %s: %w", kind, err)
	}
	fault.Point("journal." + kind)
	return e.ID, nil
}

// Done marks an entry: it was undone, or what it undoes is over.
func (j Journal) Done(ctx context.Context, id string) error {
	if err := j.append(ctx, line{Entry: Entry{ID: id, At: time.Now().UTC()}, Done: true}, atomicfile.Volatile); err != nil {
		return fmt.Errorf("journal the end of %s: %w", id, err)
	}
	return nil
}

// Pending are the entries that are not done, oldest first. A last line that was
// cut off is not an entry: what it announces was never begun. Damage before
// it is atomicfile.ErrCorrupt. A journal that does not exist is empty.
func (j Journal) Pending(ctx context.Context) ([]Entry, error) {
	if _, err := os.Stat(j.path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	l, err := j.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Unlock()
	entries, _, err := read(l.File())
	if err != nil {
		return nil, fmt.Errorf("read the journal %s: %w", j.path, err)
	}
	return entries, nil
}

// Remove deletes a journal that has nothing left to undo; otherwise it returns
// ErrPending. One that does not exist is removed already.
func (j Journal) Remove(ctx context.Context) error {
	if _, err := os.Stat(j.path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	l, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer l.Unlock()
	entries, _, err := read(l.File())
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%w: %d, the last of kind %s", ErrPending, len(entries), entries[len(entries)-1].Kind)
	}
	if err == nil {
		err = os.Remove(j.path)
	}
	if err != nil {
		return fmt.Errorf("remove the journal %s: %w", j.path, err)
	}
	return nil
}

func (j Journal) lock(ctx context.Context) (*flock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return flock.Acquire(ctx, j.path)
}

func (j Journal) append(ctx context.Context, l line, d atomicfile.Durability) (err error) {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	lock, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	f := lock.File()
	_, end, err := read(f)
	if err != nil {
		return err
	}
	if !l.Done && end+int64(len(text)) > maxSize {
		return fmt.Errorf("%s: %w", j.path, ErrFull)
	}
	// The remains of a line that was cut off would spoil the next one.
	if err := f.Truncate(end); err != nil {
		return err
	}
	if _, err := f.WriteAt(append(text, '\n'), end); err != nil {
		return errors.Join(err, f.Truncate(end))
	}
	if d == atomicfile.Durable {
		if err := f.Sync(); err != nil {
			return err
		}
		if end == 0 {
			return atomicfile.SyncDir(filepath.Dir(j.path))
		}
	}
	return nil
}

// read returns what is pending and where the last whole line ends.
func read(f *os.File) ([]Entry, int64, error) {
	// A done mark may always be added, so the file can be a little longer.
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 2*maxSize))
	if err != nil {
		return nil, 0, err
	}
	return parse(data)
}
