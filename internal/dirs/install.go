package dirs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNotInstalled is returned if a part of Bulkhead is not found beside the running executable.
var ErrNotInstalled = errors.New("part of Bulkhead is not installed")

// Sibling returns the path of one of Bulkhead's executables, beside the running one or in ../libexec/bulkhead.
// BULKHEAD_LIBEXEC names another directory.
func Sibling(name string) (string, error) {
	return find(name, os.Getenv("BULKHEAD_LIBEXEC"), ".", "../libexec/bulkhead")
}

// Guest returns the directory of the guest bundle (vmlinux, initrd, bundle.json). It is BULKHEAD_GUEST, "guest" beside
// the running executable, or share/bulkhead/guest beside the directory of the executable.
func Guest() (string, error) {
	if dir := os.Getenv("BULKHEAD_GUEST"); dir != "" {
		return dir, nil
	}
	bundle, err := find("guest/bundle.json", "", ".", "../share/bulkhead", "../../share/bulkhead")
	if err != nil {
		return "", fmt.Errorf("%w: build it with make guest", err)
	}
	return filepath.Dir(bundle), nil
}

func find(name, override string, candidates ...string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	if resolved, err := filepath.EvalSymlinks(exe); err == nil {
		exe = resolved
	}
	if override != "" {
		candidates = append([]string{override}, candidates...)
	}
	for _, dir := range candidates {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(filepath.Dir(exe), dir)
		}
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s near %s: %w", name, exe, ErrNotInstalled)
}
