// Package oomscore controls which processes the kernel kills when the host has no memory left.
package oomscore

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Unprotect removes a process's protection from the OOM killer. An engine's service is protected, and its children
// inherit that; a pod's VM must not be protected. A process that is more likely to be killed stays so.
func Unprotect(pid int) error { return unprotect(filepath.Join("/proc", strconv.Itoa(pid))) }

func unprotect(dir string) error {
	path := filepath.Join(dir, "oom_score_adj")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the OOM score: %w", err)
	}
	if !strings.HasPrefix(string(text), "-") {
		return nil
	}
	if err := os.WriteFile(path, []byte("0"), 0); err != nil {
		return fmt.Errorf("set the OOM score: %w", err)
	}
	return nil
}
