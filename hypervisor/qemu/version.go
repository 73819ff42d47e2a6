package qemu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// firmware is where a distribution keeps what QEMU loads into a machine.
var firmware = []string{"/usr/share/seabios/bios-256k.bin", "/usr/share/qemu/bios-256k.bin", "/usr/share/qemu/pvh.bin"}

// Identity implements hypervisor.Driver: the version that QEMU states, and
// size and modification time of the program and its firmware, which change
// with every update of their packages.
func (d Driver) Identity(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, d.Program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", d.Program, err)
	}
	version, _, _ := strings.Cut(string(out), "\n")
	id := []string{version}
	for i, path := range append([]string{d.Program}, firmware...) {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			var info os.FileInfo
			if info, err = os.Stat(real); err == nil {
				id = append(id, fmt.Sprintf("%s %d %d", real, info.Size(), info.ModTime().UnixNano()))
			}
		}
		if err != nil && i == 0 {
			return "", fmt.Errorf("identify QEMU: %w", err)
		}
	}
	return strings.Join(id, "\n"), nil
}
