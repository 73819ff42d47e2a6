package reaper_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// shared is the only reaper in this process.
var shared = reaper.New()

func TestMain(m *testing.M) {
	// Like process 1, this process adopts orphans.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go shared.Run()
	os.Exit(m.Run())
}

func shell(t *testing.T, script string, files ...uintptr) *reaper.Child {
	t.Helper()
	for len(files) < 3 {
		files = append(files, uintptr(len(files)))
	}
	c, err := shared.Start("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Files: files, Env: []string{"PATH=/bin:/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wait(t *testing.T, c *reaper.Child) unix.WaitStatus {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(testdeadline.For(10 * time.Second)):
		t.Fatalf("process %d is not reaped", c.PID())
	}
	return c.Status()
}

func TestStart(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for code := range 30 {
		all.Go(func() {
			if got := wait(t, shell(t, fmt.Sprintf("exit %d", code))); got.ExitStatus() != code {
				t.Errorf("exit status %d, want %d", got.ExitStatus(), code)
			}
		})
	}
	all.Wait()
	if _, err := shared.Start("/nowhere", []string{"x"}, &syscall.ProcAttr{}); err == nil {
		t.Error("a missing program was started")
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	c := shell(t, "exec sleep 100")
	if err := c.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, c); !got.Signaled() || got.Signal() != unix.SIGKILL {
		t.Errorf("status %x", got)
	}
	if err := c.Signal(unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	c := shell(t, "exec sleep 100")
	f, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.PidfdSendSignal(int(f.Fd()), unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, c); got.Signal() != unix.SIGKILL {
		t.Errorf("status %x", got)
	}
	if _, err := c.Open(); !errors.Is(err, unix.ESRCH) {
		t.Errorf("open after the end: %v", err)
	}
}

// TestAdopt adopts processes of other parents, also one that ends before its id is known.
func TestAdopt(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		`sh -c 'echo $$; exit 5' & exec sleep 0.2`, // does not wait for the child
		`sh -c 'echo $$; sleep 0.2; exit 5' & exit`,
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		release := shared.Adopting()
		parent := shell(t, script, 0, w.Fd(), 2)
		w.Close()
		var pid int
		if _, err := fmt.Fscan(r, &pid); err != nil {
			t.Fatal(err)
		}
		r.Close()
		wait(t, parent)
		var before bool
		c := shared.Adopt(pid, func() { before = true })
		release()
		if got := wait(t, c); got.ExitStatus() != 5 || !before {
			t.Errorf("%s: status %x, onExit %t", script, got, before)
		}
	}
}

// TestAdoptGone: a process that another parent has reaped also ends.
func TestAdoptGone(t *testing.T) {
	t.Parallel()
	c := shell(t, "exit 0")
	wait(t, c)
	if got := wait(t, shared.Adopt(c.PID(), nil)); got.ExitStatus() != 255 {
		t.Errorf("status %x", got)
	}
}
