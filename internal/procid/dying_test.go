package procid

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDying kills a process that is frozen: it exists, but is dying.
func TestDying(t *testing.T) {
	cmd := start(t)
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if id.Dying() {
		t.Error("a running process is dying")
	}
	thaw := freeze(t, id.PID)
	if err := id.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !id.Alive() || !id.Dying() {
		t.Errorf("killed and frozen: alive %v, dying %v", id.Alive(), id.Dying())
	}
	thaw()
	if err := id.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id.Dying() {
		t.Error("a process that is gone is dying")
	}
}

// freeze stops pid so that not even a kill wakes it, which only cgroup v1 can. It returns a function that thaws it.
func freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	dir, err := os.MkdirTemp("/sys/fs/cgroup/freezer", "bulkhead-test-")
	if err != nil {
		t.Skipf("no freezer of cgroup v1: %v", err)
	}
	write := func(name, value string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	thaw = func() { write("freezer.state", "THAWED") }
	t.Cleanup(func() {
		thaw()
		for limit := time.Now().Add(10 * time.Second); os.Remove(dir) != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Errorf("%s is left", dir)
				return
			}
		}
	})
	write("cgroup.procs", strconv.Itoa(pid))
	write("freezer.state", "FROZEN")
	for {
		state, err := os.ReadFile(filepath.Join(dir, "freezer.state"))
		if err != nil {
			t.Fatal(err)
		}
		if string(state) == "FROZEN\n" {
			return thaw
		}
	}
}
