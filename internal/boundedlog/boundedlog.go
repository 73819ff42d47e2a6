// Package boundedlog limits the size of a process's log, whatever it writes.
package boundedlog

import (
	"os"
	"sync"
)

// Writer writes to a file that is open for appending. Only regular files are limited. It is safe for concurrent use.
type Writer struct {
	mu    sync.Mutex
	f     *os.File
	limit int64
}

// New returns a Writer to f. It truncates f before a write that would make it larger than limit bytes.
func New(f *os.File, limit int64) *Writer { return &Writer{f: f, limit: limit} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if info, err := w.f.Stat(); err == nil && info.Mode().IsRegular() && info.Size()+int64(len(p)) > w.limit {
		_ = w.f.Truncate(0) // if that fails, write anyway
	}
	return w.f.Write(p)
}
