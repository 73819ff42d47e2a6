package stdio

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openFile opens a log file for both outputs, and creates it with its directory.
func (s *Streams) openFile(path string, names Names) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("open stdout: %w", err)
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOCTTY, 0o644)
	if err != nil {
		return fmt.Errorf("open stdout: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	s.Stdout = os.NewFile(uintptr(fd), path)
	if !names.Terminal {
		s.Stderr = s.Stdout
	}
	return nil
}
