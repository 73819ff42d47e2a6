package procid

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestGroup: children are found and, in their parent's process group, killed with it. A process that does not lead a
// group is killed alone.
func TestGroup(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, leads := range []bool{true, false} {
		cmd := exec.Command("/bin/sh", "-c", "sleep 60 & echo $!; wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: leads}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(line[:len(line)-1])
		if err != nil {
			t.Fatal(err)
		}
		child, err := Of(pid)
		if err != nil {
			t.Fatal(err)
		}
		id, err := Of(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := id.Children(); err != nil || !slices.Equal(got, []ID{child}) {
			t.Errorf("children: %v, %v, want %v", got, err, child)
		}
		if err := id.KillGroup(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed
		if !leads {
			if !child.Alive() {
				t.Error("a process that is in no group of its parent's was killed")
			}
			if err := child.Signal(unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		if err := child.Wait(ctx); err != nil {
			t.Error(err)
		}
		if err := id.KillGroup(); !errors.Is(err, ErrGone) {
			t.Errorf("the second kill: %v", err)
		}
		if _, err := id.Children(); !errors.Is(err, ErrGone) {
			t.Errorf("children of a process that is gone: %v", err)
		}
	}
}
