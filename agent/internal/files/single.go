package files

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Singles are files that come with specifications. It is safe for concurrent use.
type Singles struct {
	dir string

	mu sync.Mutex        // guards the following
	at map[string]string // by place and content
}

// NewSingles returns the files in a directory, which is created at the first use.
func NewSingles(dir string) *Singles { return &Singles{dir: dir, at: map[string]string{}} }

// Write writes a file for a path in containers. Containers with the same file share it, like the files of a pod's
// kubelet.
func (s *Singles) Write(destination, content string) (string, error) {
	key := destination + "\x00" + content
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.at[key]; at != "" {
		return at, nil
	}
	if err := os.MkdirAll(s.dir, 0o711); err != nil {
		return "", err
	}
	at := filepath.Join(s.dir, strconv.Itoa(len(s.at)))
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		return "", err
	}
	s.at[key] = at
	return at, nil
}
