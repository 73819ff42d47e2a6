package confine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Walls is the confinement of Start for a process that confines itself.
type Walls struct {
	// Ruleset is Landlock's ruleset, nil without Landlock. Any number of processes can restrict themselves with it.
	Ruleset *os.File
	// Filter holds the system call filter, an array of the kernel's struct sock_filter. Readers must read it by offset.
	Filter *os.File
	// Missing is as in Start.
	Missing error
}

// MakeWalls returns the confinement that Start would give a program with p, for a program that is running already and
// starts no program itself.
func MakeWalls(p Policy) (w Walls, err error) {
	if w.Ruleset, w.Missing, err = newRuleset(p, allScopes); err != nil {
		return Walls{}, fmt.Errorf("landlock: %w", err)
	}
	if w.Filter, err = filterFile(p); err != nil {
		return Walls{}, errors.Join(fmt.Errorf("seccomp: %w", err), w.Close())
	}
	return w, nil
}

// Close closes the files.
func (w Walls) Close() error {
	var errs []error
	for _, f := range []*os.File{w.Ruleset, w.Filter} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func filterFile(p Policy) (*os.File, error) {
	program, err := compile(vmFilter, p)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("bulkhead-filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:filter")
	code := unsafe.Slice((*byte)(unsafe.Pointer(program.Filter)), int(program.Len)*unix.SizeofSockFilter)
	if _, err := f.Write(code); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
