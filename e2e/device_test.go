package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDevice: one pod gets a block device of the host, with the permissions of the command line. The device is free
// after the pod has ended, also if its engine and its VM were killed.
func TestDevice(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("not looked at: an ordinary user makes no loop device")
		return
	}
	w := newWorld(t)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", disk).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	on := func(access, name, script string) *command {
		t.Helper()
		return w.run(t, "", "run", "-d", "-q", "--name", name, "--device", loop+":/dev/xvda"+access, image, "sh", "-c", script)
	}
	inside := func(script string) string {
		t.Helper()
		return w.must(t, "", "exec", "holder", "--", "sh", "-c", "exec 2>&1; "+script+"; true")
	}
	if c := on("", "holder", "sleep 1000"); c.ProcessState.ExitCode() != 0 {
		t.Fatal(c)
	}
	if got := inside("blockdev --getsize64 /dev/xvda; echo one >/dev/xvda; head -c 4 /dev/xvda; sync"); got != "1048576\none\n" {
		t.Errorf("in the pod: %q", got)
	}
	free := func(mode int) error {
		fd, err := unix.Open(loop, mode|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	if err := free(unix.O_RDWR); err == nil {
		t.Error("the host can open the pod's device")
	}
	c := w.run(t, "", "run", "--rm", "-q", "--device", loop, image, "true")
	if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), "pod default/holder has it") {
		t.Errorf("a second pod: %v", c)
	}
	for _, victim := range []string{"engine", "qemu"} {
		for _, p := range w.processes() {
			if p.is(victim) || victim == "qemu" && p.qemu() != "" {
				if err := kill(p.pid); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.must(t, "", "ps")
	}
	w.must(t, "", "rm", "-f", "holder")
	if err := free(unix.O_RDWR); err != nil {
		t.Errorf("after the pod: %v", err)
	}
	if c := on(":r", "holder", "sleep 1000"); c.ProcessState.ExitCode() != 0 {
		t.Fatal(c)
	}
	if got := inside("head -c 4 /dev/xvda; echo two >/dev/xvda"); !strings.HasPrefix(got, "one\n") ||
		!strings.Contains(got, "Operation not permitted") {
		t.Errorf("a pod that may read: %q", got)
	}
	w.must(t, "", "rm", "-f", "holder")
	if data, err := os.ReadFile(disk); err != nil || !strings.HasPrefix(string(data), "one\n") {
		t.Errorf("on the host: %.8q, %v", data, err)
	}
}
