package build_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/guest/build"
)

// TestBoot boots the bundle under emulation in a pod's VM, with an init that loads every listed module, and reads its
// console.
func TestBoot(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a VM")
	}
	t.Parallel()
	b, err := build.Bundle(options(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	console := filepath.Join(dir, "console")
	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	began := time.Now()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-machine", "q35", "-accel", "tcg,tb-size=64", "-cpu", "max", "-m", "256,maxmem=1G,slots=1",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", b.KernelPath(), "-initrd", b.InitrdPath(), "-append", b.Cmdline+" console=ttyS0",
		"-serial", "file:"+console,
		"-device", "virtio-serial-pci",
		"-drive", "if=none,id=disk,format=raw,file="+disk, "-device", "virtio-blk-pci,drive=disk",
		"-nic", "user,model=virtio-net-pci,restrict=on",
		"-object", "memory-backend-ram,id=more,size=512M",
		"-device", "virtio-mem-pci,memdev=more,requested-size=256M",
	)
	out, err := qemu.CombinedOutput()
	text, readErr := os.ReadFile(console)
	if err != nil || readErr != nil {
		t.Fatalf("QEMU: %v, console: %v\n%s\n%s", err, readErr, out, text)
	}
	t.Logf("booted, loaded %d modules and powered off in %v", len(b.Modules), time.Since(began).Round(time.Millisecond))

	lines := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	want := []string{
		"init: main",
		"init: done",
		"init: disk vda",
		"init: link eth0",
		"init: memory grew",
		"ext4",
		"erofs",
		"nodev overlay",
		"nodev fuse",
	}
	for _, name := range b.Modules {
		want = append(want, "init: loaded /lib/modules/"+name+".ko")
	}
	for _, line := range want {
		if !lines[line] {
			t.Errorf("the console has no line %q", line)
		}
	}
	if t.Failed() {
		t.Logf("console:\n%s", text)
	}
}
