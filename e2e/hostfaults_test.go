package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// faulty is a pod with directories of the host that will fail. Its other container has none of them.
const faulty = "faulty"

// TestHostFaults: failures below a shared directory appear in the pod as on the host, and nothing else fails. When
// the directory recovers, it recovers in the pod too.
func TestHostFaults(t *testing.T) {
	testturn.SkipUnless(t, 1, 3)
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	full, ro := memoryDisk(t, filepath.Join(dir, "full"), "size=1m"), memoryDisk(t, filepath.Join(dir, "ro"), "size=1m")
	slow := testfs.Slow(t, filepath.Join(dir, "slow"))
	w.must(t, sharing(t, faulty, dir, "full", "ro", "slow", "moved", "removed", "covered", "well"), "run", "-d", "-q", "-")
	in := func(script string) string {
		t.Helper()
		c := w.run(t, "", "exec", faulty, "--", "sh", "-c", script)
		return strings.TrimSpace(c.out.String() + c.err.String())
	}
	expect := func(script, want string) {
		t.Helper()
		if got := in(script); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	onHost := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	t.Run("full", func(t *testing.T) {
		expect("echo kept >/full/kept && sync", "")
		expect("dd if=/dev/zero of=/full/big bs=64k count=32 2>&1", "No space left on device")
		expect("echo more >>/full/more 2>&1; cat /full/kept", "kept")
		expect("echo well >/well/full && cat /well/full", "well")
		onHost(os.Remove(filepath.Join(full, "big")))
		// The server keeps the file that the pod knows for some seconds.
		expect("until echo again 2>/dev/null >/full/again; do sleep 0.2; done; cat /full/kept /full/again", "kept\nagain")
	})
	t.Run("read-only", func(t *testing.T) {
		expect("echo kept >/ro/kept", "")
		// The server closes the file some time after the guest.
		err := unix.Mount("", ro, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
		for end := time.Now().Add(testdeadline.For(10 * time.Second)); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
			err = unix.Mount("", ro, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
		onHost(err)
		expect("echo more 2>&1 >/ro/more", "Read-only file system")
		expect("cat /ro/kept", "kept")
		onHost(unix.Mount("", ro, "", unix.MS_REMOUNT, ""))
		expect("echo again >/ro/again && cat /ro/again", "again")
	})
	t.Run("moved", func(t *testing.T) {
		expect("echo kept >/moved/kept", "")
		onHost(os.Rename(filepath.Join(dir, "moved"), filepath.Join(dir, "elsewhere")))
		expect("echo more >/moved/more; cat /moved/kept", "kept")
		if text, err := os.ReadFile(filepath.Join(dir, "elsewhere/more")); err != nil || string(text) != "more\n" {
			t.Errorf("where it is now: %q, %v", text, err)
		}
	})
	t.Run("removed", func(t *testing.T) {
		expect("echo kept >/removed/kept", "")
		onHost(os.RemoveAll(filepath.Join(dir, "removed")))
		expect("echo more 2>&1 >/removed/more", "nonexistent directory")
		onHost(os.Mkdir(filepath.Join(dir, "removed"), 0o755)) // another one
		expect("sleep 1.1; ls /removed; echo well >/well/removed && cat /well/removed", "well")
	})
	t.Run("covered", func(t *testing.T) {
		expect("echo kept >/covered/kept", "")
		memoryDisk(t, filepath.Join(dir, "covered"), "size=1m")
		expect("sleep 1.1; cat /covered/kept", "kept")
	})
	t.Run("server's next start", func(t *testing.T) {
		if killed := w.killServers(t); killed != 1 {
			t.Errorf("%d servers", killed)
		}
		// Vanished directories are not served, the others are.
		expect("until cat /well/full 2>/dev/null; do :; done", "well")
		expect("cat /ro/kept /full/kept", "kept\nkept")
		expect("cat /moved/kept 2>&1", "cat: ")
	})
	t.Run("slow", func(t *testing.T) {
		late := w.start(t, "", "exec", faulty, "--", "cat", "/slow/late")
		awaitRead(t, slow)
		expect("echo well >/well/slow && cat /well/slow", "well")
		if got := w.must(t, "", "exec", faulty, "-c", "other", "--", "cat", "/well/slow"); got != "well\n" {
			t.Errorf("the other container: %q", got)
		}
		// The wait must be longer than any timeout in between.
		select {
		case <-late.ended:
			t.Errorf("it is not waited for: %v", late)
		case <-time.After(3 * time.Second):
		}
		slow.Answer()
		if late.wait(t) != 0 || late.out.String() != testfs.Late {
			t.Errorf("%v", late)
		}
	})
	t.Run("removed with a read that waits", func(t *testing.T) {
		slow.Hold()
		late := w.start(t, "", "exec", faulty, "--", "cat", "/slow/later")
		awaitRead(t, slow)
		began := time.Now()
		w.must(t, "", "rm", "-f", faulty)
		if took := time.Since(began); took > testdeadline.For(15*time.Second) {
			t.Errorf("it took %v", took)
		}
		if late.wait(t) == 0 {
			t.Errorf("%v", late)
		}
		slow.Answer()
	})
	w.end(t)
}

// awaitRead returns when the slow file is read.
func awaitRead(t *testing.T, s *testfs.Slowness) {
	t.Helper()
	select {
	case <-s.Asked:
	case <-time.After(testdeadline.For(30 * time.Second)):
		t.Fatal("it is not read")
	}
}

// memoryDisk creates dir and mounts a file system in memory on it.
func memoryDisk(t *testing.T, dir, options string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// killServers kills all servers of host directories and returns their number.
func (w *world) killServers(t *testing.T) (killed int) {
	t.Helper()
	for _, p := range w.processes() {
		if p.is("share") {
			killed++
			if err := kill(p.pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	return killed
}

// sharing is a pod with directories below dir at the top of its first container. The other container has the last
// of them.
func sharing(t *testing.T, name, dir string, shared ...string) string {
	t.Helper()
	var volumes, mounts strings.Builder
	for _, s := range shared {
		if err := os.MkdirAll(filepath.Join(dir, s), 0o755); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&volumes, "  - {name: %s, hostPath: {path: %s, type: Directory}}\n", s, filepath.Join(dir, s))
		fmt.Fprintf(&mounts, "{name: %s, mountPath: /%s}, ", s, s)
	}
	last := shared[len(shared)-1]
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  volumes:
%s  containers:
  - {name: c, image: %s, command: [sleep, "100000"], volumeMounts: [%s]}
  - {name: other, image: %[3]s, command: [sleep, "100000"], volumeMounts: [{name: %[5]s, mountPath: /%[5]s}]}
`, name, volumes.String(), image, mounts.String(), last)
}
