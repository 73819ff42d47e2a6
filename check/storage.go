package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

func (m *host) directories(ctx context.Context) Finding {
	r := m.options.Roots
	f := judgeDirectories(r, r.Ensure(), writable(r.Data), writable(r.State))
	m.stateOK = f.Status != Fail
	if !m.stateOK {
		return f
	}
	if _, err := Sweep(ctx, r); err != nil {
		return warn(fmt.Sprintf("a killed check left files in %s: %v", r.State, err), "end it and remove its directory")
	}
	return f
}

// judgeDirectories judges the errors from creating the roots and from writing to each.
func judgeDirectories(r dirs.Roots, ensure, data, state error) Finding {
	another := "set BULKHEAD_DATA and BULKHEAD_STATE to directories of your own"
	switch {
	case len(r.State) > dirs.MaxState:
		return fail(fmt.Sprintf("the state directory %s has %d characters, and sockets below it leave room for %d",
			r.State, len(r.State), dirs.MaxState), "set BULKHEAD_STATE to a shorter path")
	case errors.Is(ensure, dirs.ErrForeign):
		return fail(ensure.Error(), another)
	case ensure != nil:
		return fail(ensure.Error(), another)
	case data != nil:
		return fail(fmt.Sprintf("%s cannot be written: %v", r.Data, data), another)
	case state != nil:
		return fail(fmt.Sprintf("%s cannot be written: %v", r.State, state), another)
	}
	return ok(fmt.Sprintf("data in %s, state in %s", r.Data, r.State))
}

// writable creates a file in dir and removes it.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".check-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

// The space for a template, the scratch disks of some pods and a small image.
const (
	leastDisk  = 256 << 20
	enoughDisk = 2 << 30
)

// storage is the state of the file system with the data directory.
type storage struct {
	path       string
	free       uint64
	freeErr    error
	sparse     uint64 // bytes on disk of an empty file with a disk slot's size
	sparseErr  error
	memoryOnly bool // lost at the next boot
}

func (m *host) disk(context.Context) Finding {
	return judgeDisk(storageOf(m.options.Roots.Data))
}

func storageOf(data string) storage {
	s := storage{path: existing(data)}
	var fs unix.Statfs_t
	if s.freeErr = unix.Statfs(s.path, &fs); s.freeErr == nil {
		s.free = fs.Bavail * uint64(fs.Bsize)
		s.memoryOnly = fs.Type == unix.TMPFS_MAGIC
	}
	s.sparse, s.sparseErr = sparse(s.path)
	return s
}

// existing returns the nearest existing directory to path.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// sparse creates an empty file as large as a pod's disk, and returns its bytes on disk.
func sparse(dir string) (uint64, error) {
	f, err := os.CreateTemp(dir, ".check-")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if err := f.Truncate(hypervisor.SlotSize); err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return uint64(st.Blocks) * 512, nil
}

func judgeDisk(s storage) Finding {
	elsewhere := "set BULKHEAD_DATA to a directory on another file system"
	free := fmt.Sprintf("%s has %s free", s.path, size(s.free))
	switch {
	case s.freeErr != nil:
		return fail(fmt.Sprintf("%s: %v", s.path, s.freeErr), elsewhere)
	case s.sparseErr != nil:
		return fail(fmt.Sprintf("%s cannot hold a disk of a pod, a sparse file of %s: %v",
			s.path, size(hypervisor.SlotSize), s.sparseErr), elsewhere)
	case s.sparse > 1<<20:
		return fail(fmt.Sprintf("%s has no sparse files: an empty disk of a pod would take %s", s.path, size(s.sparse)), elsewhere)
	case s.free < leastDisk:
		return fail(free+", and the first pod needs "+size(leastDisk), "free some space (bulkhead image rm, bulkhead template rm), or "+elsewhere)
	case s.free < enoughDisk:
		return warn(free+": enough for small images only", "free some space (bulkhead image rm, bulkhead template rm), or "+elsewhere)
	case s.memoryOnly:
		return warn(free+", but it lies in memory and is lost at the next boot", elsewhere)
	}
	return ok(free + ", with sparse files")
}

// size formats bytes in powers of 1024.
func size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
