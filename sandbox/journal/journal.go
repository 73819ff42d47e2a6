// Package journal keeps undo records of an operation on disk. The record of a side effect is written before the side
// effect happens. After a crash, any process that finds the journal can clean up without knowing the operation.
//
// A journal is a text file with one JSON entry per line. Any process may append to it; each append holds flock(2).
// Another line marks an entry that was undone or needs no undo any more.
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
	// errUnknownKind is returned by Undo for an entry without a handler. The entry stays.
	errUnknownKind = errors.New("no handler for this kind of entry")
	// errPending is returned by Remove while entries are left to undo.
	errPending = errors.New("journal has entries to undo")
	// errFull is returned by Before when the journal has grown past its bound.
	errFull = errors.New("journal is full")
)

// maxSize bounds a journal, in bytes. It has room for thousands of entries.
const maxSize = 4 << 20

// lockWait bounds the wait for another process's append.
const lockWait = 10 * time.Second

// Entry is a pending undo.
type Entry struct {
	ID   string          `json:"id"`
	Kind string          `json:"kind"` // key of its handler
	Args json.RawMessage `json:"args,omitempty"`
	At   time.Time       `json:"at"`
}

// line is an entry or, with Done, the mark that ends it.
type line struct {
	Entry
	Done bool `json:"done,omitempty"`
}

// Journal is a journal's path. It holds no open file and is safe for concurrent use, also by several processes.
type Journal struct{ path string }

// At returns the journal at path. The first entry creates the file.
func At(path string) Journal { return Journal{path} }

// Before records how to undo the caller's next step, and returns the entry's id. Durable entries survive a power
// failure. Side effects that end with the boot do not need that.
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

// Done marks an entry: it was undone, or its side effect is over.
func (j Journal) Done(ctx context.Context, id string) error {
	if err := j.append(ctx, line{Entry: Entry{ID: id, At: time.Now().UTC()}, Done: true}, atomicfile.Volatile); err != nil {
		return fmt.Errorf("journal the end of %s: %w", id, err)
	}
	return nil
}

// Pending returns the entries that are not done, oldest first. An incomplete last line is no entry, because its side
// effect has not begun. Damage before it is atomicfile.ErrCorrupt. A missing journal is empty.
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

// Remove deletes a journal without pending entries; otherwise it returns errPending. It is a no-op if the journal does
// not exist.
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
		err = fmt.Errorf("%w: %d, the last of kind %s", errPending, len(entries), entries[len(entries)-1].Kind)
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
		return fmt.Errorf("%s: %w", j.path, errFull)
	}
	// Cut off an incomplete line, which would corrupt the next one.
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

// read returns the pending entries and the offset of the end of the last whole line.
func read(f *os.File) ([]Entry, int64, error) {
	// Done marks are always accepted, so the file can exceed maxSize a little.
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 2*maxSize))
	if err != nil {
		return nil, 0, err
	}
	return parse(data)
}
