package template

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// Template is an open template. It stays whole while it is open, even if it is removed from the store. It is safe for
// concurrent use.
type Template struct {
	Info Info

	memory, state *os.File

	mu     sync.Mutex
	sealed *os.File
}

// Memory returns the guest's memory in a sealed memfd, for hypervisor.Files of any number of clones. The first call
// fills it. The Template owns it. If the file differs from the one that was built, the error is ErrDamaged.
func (t *Template) Memory() (*os.File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed != nil {
		return t.sealed, nil
	}
	f, err := seal(t.memory, t.Info.Memory)
	if err != nil {
		return nil, err
	}
	t.sealed = f
	return f, nil
}

// State returns the devices' state, for hypervisor.Files of any number of clones. The Template owns it.
func (t *Template) State() *os.File { return t.state }

// Close releases the memory. It is freed when the last clone has ended.
func (t *Template) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, f := range []**os.File{&t.memory, &t.state, &t.sealed} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

// openFiles opens the files that Info describes.
func (t *Template) openFiles(dir string) (err error) {
	if t.memory, err = openExact(filepath.Join(dir, memoryFile), t.Info.Memory.Size); err != nil {
		return err
	}
	t.state, err = openExact(filepath.Join(dir, stateFile), t.Info.State.Size)
	return err
}

// checkState checks the whole state, which is small. The memory is checked when it is copied.
func (t *Template) checkState() error {
	sum, err := checksum(t.state, t.Info.State.Size)
	if err != nil {
		return err
	}
	if sum != t.Info.State.Sum {
		return damaged("the state's sum is %08x instead of %08x", sum, t.Info.State.Sum)
	}
	return nil
}
