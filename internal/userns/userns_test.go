package userns

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestEnter checks that a process is root in a namespace with the mappings of another process's.
func TestEnter(t *testing.T) {
	if initial, err := Initial(); os.Geteuid() != 0 || !initial || err != nil {
		t.Skipf("only the host's root maps several users (%v)", err)
	}
	want := Mappings{UIDs: "0 100000 1000\n1000 5000 1", GIDs: "0 200000 65536"}
	for range 2 {
		cmd := exec.Command("sh", "-c", "cat; id -u; id -g")
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		if err := want.Enter(cmd.SysProcAttr); err != nil {
			t.Fatal(err)
		}
		hold, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		cmd.Stdout = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		got, err := Of(cmd.Process.Pid)
		hold.Close()
		if waitErr := cmd.Wait(); err != nil || waitErr != nil || got != want || said.String() != "0\n0\n" {
			t.Fatalf("got %+v, %v; the process says %q, %v", got, err, said.String(), waitErr)
		}
		want = got
	}
	if uid, gid, err := want.Root(); uid != 100000 || gid != 200000 || err != nil {
		t.Errorf("its root: got %d, %d, %v", uid, gid, err)
	}
}

func TestOwn(t *testing.T) {
	if m, err := Of(os.Getpid()); m != (Mappings{}) || err != nil {
		t.Errorf("the own namespace: got %+v, %v", m, err)
	}
	if _, err := Of(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: got %v", err)
	}
}

func TestRoot(t *testing.T) {
	for text, m := range map[string]Mappings{
		"no root": {UIDs: "1 100000 10", GIDs: "0 100000 10"}, "mapping": {UIDs: "0 x 1", GIDs: "0 1 1"}, "user 0": {},
	} {
		if _, _, err := m.Root(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: got %v, want %q", m, err, text)
		}
		if err := m.Enter(&syscall.SysProcAttr{}); err == nil {
			t.Errorf("%+v: got nil, want an error", m)
		}
	}
}

// TestInner: root of a user namespace is not the host's root, and knows the namespace's owner.
func TestInner(t *testing.T) {
	const inside = "USERNS_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		if uid, inner := Inner(); HostRoot() || !inner || uid != 100000 {
			t.Errorf("inside: the host's root %v, %d, %v", HostRoot(), uid, inner)
		}
		return
	}
	if initial, err := Initial(); os.Geteuid() != 0 || !initial || err != nil {
		t.Skipf("only the host's root maps other users (%v)", err)
	}
	if _, inner := Inner(); !HostRoot() || inner {
		t.Errorf("outside: the host's root %v, inner %v", HostRoot(), inner)
	}
	program, err := os.Open("/proc/self/exe") // the user cannot enter its directory
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestInner$")
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{inside + "=1"}, []*os.File{program}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := (Mappings{UIDs: "0 100000 1000", GIDs: "0 100000 1000"}).Enter(cmd.SysProcAttr); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("inside: %v: %s", err, out)
	}
}
