package confine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Walls are those that Start puts up, for a process that puts them up by itself.
type Walls struct {
	// Ruleset is Landlock's, nil where the kernel lacks it. Any number of processes
	// restrict themselves by it.
	Ruleset *os.File
	// Filter holds the code of the filter of system calls, an array of the kernel's
	// struct sock_filter. It is read by offset.
	Filter *os.File
	// Missing is as with Start.
	Missing error
}

// MakeWalls makes the walls of a program that Start would start with p, when it runs
// already: it starts no program itself.
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
	program, err := compile(machineFilter, p)
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
