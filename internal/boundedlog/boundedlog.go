// Package boundedlog keeps the log of a process within a size, whatever it is made
// to say.
package boundedlog

import (
	"os"
	"sync"
)

// Writer writes to a file that is open for appending; what is no regular file is
// not bounded. Its methods may be called at once.
type Writer struct {
	mu    sync.Mutex
	f     *os.File
	limit int64
}

// New returns a Writer to f, which is begun anew when a write would make it larger
// than limit bytes.
func New(f *os.File, limit int64) *Writer { return &Writer{f: f, limit: limit} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if info, err := w.f.Stat(); err == nil && info.Mode().IsRegular() && info.Size()+int64(len(p)) > w.limit {
		_ = w.f.Truncate(0) // what cannot be cut is written to all the same
	}
	return w.f.Write(p)
}
