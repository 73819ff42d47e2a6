// Package oomscore is about whom the kernel kills when the host has no memory left.
package oomscore

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Unprotect has a process be killed as readily as any other. The service of an engine is
// protected, and what it starts inherits that: a pod's VM must not. A process that is
// killed more readily stays so.
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
