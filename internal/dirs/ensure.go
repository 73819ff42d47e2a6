package dirs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrForeign is returned by Ensure for a directory that another user owns.
var ErrForeign = errors.New("directory belongs to another user")

// Ensure creates dir with mode, and its missing parents. It refuses a symbolic link or another user's directory in its
// place.
func Ensure(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("create %s: %w", filepath.Dir(dir), err)
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("create %s: %w", dir, syscall.ENOTDIR)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("create %s: %w (uid %d)", dir, ErrForeign, st.Uid)
	}
	return nil
}

// Ensure creates the roots. The pods' users may traverse them; secrets lie deeper, in directories with modes of their
// own.
func (r Roots) Ensure() error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	for _, dir := range []string{r.Data, r.State, r.Images(), r.Templates(), r.Sandboxes()} {
		if err := Ensure(dir, mode); err != nil {
			return err
		}
	}
	return nil
}
