package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// format is the version of the contents of a template's directory. Templates of other formats are never read. Templates
// of format 1 were not proven.
const format = 2

// Key returns the name of m's template: a hash of the contents of kernel and initrd, of m, and of the driver's
// identity.
func (s *Store) Key(ctx context.Context, m hypervisor.VMConfig) (string, error) {
	if err := m.Validate(); err != nil {
		return "", err
	}
	identity, err := s.driver.Identity(ctx, m)
	if err != nil {
		return "", err
	}
	kernel, err := s.hashes.of(m.Kernel)
	if err != nil {
		return "", err
	}
	initrd, err := s.hashes.of(m.Initrd)
	if err != nil {
		return "", err
	}
	m.Kernel, m.Initrd = kernel, initrd // their paths do not matter
	material, err := json.Marshal(struct {
		Format   int
		VM       hypervisor.VMConfig `json:"Machine"`
		Identity string
	}{format, m, identity})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(material)
	return hex.EncodeToString(sum[:16]), nil
}

// hashes caches the hashes of files that have not changed: a kernel is large, and its hash is needed for every clone.
type hashes struct {
	mu    sync.Mutex
	known map[fileID]string
}

// fileID changes whenever a file's content does: ctime cannot be set.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

func (h *hashes) of(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return "", fmt.Errorf("hash %s: not a file", path)
	}
	id := fileID{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
	h.mu.Lock()
	defer h.mu.Unlock()
	if sum, ok := h.known[id]; ok {
		return sum, nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	if h.known == nil {
		h.known = map[fileID]string{}
	}
	h.known[id] = hex.EncodeToString(hash.Sum(nil))
	return h.known[id], nil
}
