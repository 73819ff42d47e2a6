// Package disks manages the pods' scratch disks, which hold the containers' writes and the emptyDirs. A disk lives
// as long as its pod: each VM of the pod takes it over from the previous one, which has ended. The guest owns the
// content of a disk; this package never reads it.
package disks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// Default is the size of the disk of a pod without a limit, in bytes.
const Default = 10 << 30

// Undo is the kind of the journal's entries for UndoTransfer.
const Undo = "scratch"

// Loan is the argument of UndoTransfer.
type Loan struct {
	From string `json:"from"` // the id of the pod that had the disk
}

// ErrSize is returned if the disk's size differs from the size that the next pod needs.
var ErrSize = errors.New("the disk has another size")

// Disks manages the disks of a store's pods. Callers must serialise calls for one pod.
type Disks struct {
	Store *store.Store
	Maker scratch.Maker
}

func (d Disks) path(id string) string { return filepath.Join(d.Store.Dir(id), "scratch.img") }

// Has reports whether the pod has a disk.
func (d Disks) Has(id string) bool {
	_, err := os.Lstat(d.path(id))
	return err == nil
}

// Open opens the pod's disk. The error matches fs.ErrNotExist if there is none.
func (d Disks) Open(id string) (*os.File, error) { return os.OpenFile(d.path(id), os.O_RDWR, 0) }

// Make opens the disk that the pod has taken over, or creates one of size bytes.
func (d Disks) Make(ctx context.Context, id string, size int64) (*os.File, error) {
	if !d.Has(id) {
		if err := d.Maker.Create(ctx, d.path(id), size); err != nil {
			return nil, err
		}
	}
	return d.Open(id)
}

// Copy creates the pod's disk as a copy of the disk of a paused VM, and opens it.
func (d Disks) Copy(id string, from *os.File) (*os.File, error) {
	if err := scratch.Copy(d.path(id), from); err != nil {
		return nil, err
	}
	fault.Point("scratch.copied")
	return d.Open(id)
}

// Drop removes the pod's disk.
func (d Disks) Drop(id string) error {
	err := os.Remove(d.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Transfer moves the disk of the pod from to the pod id, which is being started and needs size bytes. The VM of from
// must have ended. The journal of id says how to undo it until id is ready. Transfer does nothing if there is no disk.
// It returns ErrSize if the size differs.
func (d Disks) Transfer(ctx context.Context, from, id string, size int64) error {
	info, err := os.Lstat(d.path(from))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size() != scratch.Rounded(size) {
		return fmt.Errorf("%w: %d bytes, not %d", ErrSize, info.Size(), scratch.Rounded(size))
	}
	if _, err := d.Store.Journal(id).Before(ctx, Undo, Loan{From: from}, atomicfile.Durable); err != nil {
		return err
	}
	if err := os.Rename(d.path(from), d.path(id)); err != nil {
		return err
	}
	fault.Point("scratch.taken")
	return nil
}

// LoanOf decodes the arguments of a journal's entry.
func LoanOf(args json.RawMessage) (l Loan, err error) {
	if err = json.Unmarshal(args, &l); err == nil && !store.ValidID(l.From) {
		err = fmt.Errorf("a disk from pod %.80q: not an id", l.From)
	}
	return l, err
}

// UndoTransfer undoes Transfer for a pod that was never ready. Its VM must have ended. A pod that was ready keeps its disk.
// The previous pod may be gone.
func (d Disks) UndoTransfer(id string, l Loan) error {
	if r, err := d.Store.Pod(id); err == nil && r.Phase != store.Starting {
		return nil
	}
	err := os.Rename(d.path(id), d.path(l.From))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give the disk back to pod %s: %w", shortid.Of(l.From), err)
	}
	return nil
}
