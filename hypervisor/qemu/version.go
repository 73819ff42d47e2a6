package qemu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// firmware is the firmware that QEMU loads into a VM, at the paths of the distributions.
var firmware = []string{
	"/usr/share/seabios/bios-256k.bin", "/usr/share/qemu/bios-256k.bin",
	"/usr/share/qemu/pvh.bin", "/usr/share/qemu/linuxboot_dma.bin",
}

// Identity implements hypervisor.Driver. It has the size and times of the program and its firmware, which change with
// every update of their packages, the command line, and the host's CPU under KVM. It does not start QEMU: that would
// add a third to the time of a clone.
func (d Driver) Identity(_ context.Context, m hypervisor.VMConfig) (string, error) {
	program, err := stamp(d.Program)
	if err != nil {
		return "", fmt.Errorf("identify QEMU: %w", err)
	}
	id := []string{program}
	for _, path := range firmware {
		if s, err := stamp(path); err == nil {
			id = append(id, s)
		}
	}
	id = append(id, arguments(m, hypervisor.Options{}, fds{}, boot)...)
	if m.Accel == hypervisor.KVM {
		cpu, err := cpuModel()
		if err != nil {
			return "", err
		}
		id = append(id, cpu)
	}
	return strings.Join(id, "\n"), nil
}

// stamp returns a file's identity without its content.
func stamp(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano()), nil
}

// cpuModel returns the parts of the host's CPU that a guest sees under KVM.
func cpuModel() (string, error) {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("identify the host's CPU: %w", err)
	}
	var model []string
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(line, "\t")
		switch strings.TrimSpace(name) {
		case "vendor_id", "cpu family", "model", "stepping", "microcode", "flags":
			model = append(model, strings.TrimSpace(line))
		case "": // the end of the first processor
			return strings.Join(model, "\n"), nil
		}
	}
	return strings.Join(model, "\n"), nil
}

// Version returns QEMU's version, in one line.
func (d Driver) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, d.Program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", d.Program, err)
	}
	version, _, _ := strings.Cut(string(out), "\n")
	return version, nil
}
