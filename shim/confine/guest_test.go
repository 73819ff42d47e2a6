package confine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// TestMain is also the first process of TestOlderKernel's guest.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		os.Exit(m.Run())
	}
	if err := prepareGuest(); err != nil {
		fmt.Println("prepare the guest:", err)
	} else {
		os.Args = []string{os.Args[0], "-test.v", "-test.run", "^(TestConfined|TestStart|TestLandlockOfTheGuest)$"}
		fmt.Println("\nguest tests:", m.Run())
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// prepareGuest creates what the tests find on any host.
func prepareGuest() error {
	for _, dir := range []string{"/proc", "/dev", "/tmp", "/bin"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"true", "cat"} {
		if err := os.Link("/busybox", "/bin/"+name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return errors.Join(
		unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo), unix.Mount("proc", "/proc", "proc", 0, ""),
		ignoreBusy(unix.Mount("dev", "/dev", "devtmpfs", 0, "")), unix.Mount("tmp", "/tmp", "tmpfs", 0, ""),
		os.Setenv("BULKHEAD_TEST_PROGRAMS", "/"))
}

func ignoreBusy(err error) error {
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// TestOlderKernel runs this package's tests under the guest's kernel, which is
// older than Landlock's rules for truncation, TCP, signals and abstract sockets.
func TestOlderKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a VM")
	}
	d, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	m := hypervisortest.VMConfig(t)
	m.Cmdline = "quiet rdinit=/confine.test noreplace-smp no5lvl cryptomgr.notests"
	m.Memory, m.MaxMem = 256, 0
	m.Kernel, m.Initrd = hypervisortest.GuestWith(t, guestPrograms(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*hypervisortest.Patience())
	defer cancel()
	console := hypervisortest.Console(t)
	v, err := d.Boot(ctx, m, hypervisor.Files{Console: console}, hypervisortest.Options(t, "older"))
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, v)
	began := time.Now()
	select {
	case <-v.Done():
	case <-ctx.Done():
		t.Error("the guest's tests do not end")
	}
	t.Logf("the guest ran for %v", time.Since(began).Round(time.Millisecond))
	out, err := os.ReadFile(console.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--- PASS: TestConfined", "--- PASS: TestStart", "--- PASS: TestLandlockOfTheGuest", "guest tests: 0"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the guest's output lacks %q", want)
		}
	}
	if t.Failed() {
		t.Logf("\n%s", out)
	}
}

// guestPrograms returns this test and the programs that it runs.
func guestPrograms(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"test", "-c", "-o", filepath.Join(dir, "confine.test"), "."},
		{"build", "-o", filepath.Join(dir, "confined"), "./testdata/confined"},
		{"build", "-o", filepath.Join(dir, "child"), "./testdata/child"},
	} {
		cmd := testgo.Command(t.Context(), append(args[:1:1], append([]string{"-trimpath", "-ldflags=-s -w"}, args[1:]...)...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	programs := map[string][]byte{}
	for name, path := range map[string]string{
		"confine.test": filepath.Join(dir, "confine.test"), "confined": filepath.Join(dir, "confined"),
		"child": filepath.Join(dir, "child"), "busybox": busybox.Binary,
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		programs[name] = b
	}
	return programs
}
