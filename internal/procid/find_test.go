package procid

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestKillAll: none of a user's processes is left, including stopped ones and those that fork. No other user's process
// is touched.
func TestKillAll(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process as another user")
	}
	const uid = 1_900_000_077
	other := start(t)
	var theirs []*exec.Cmd
	for _, script := range []string{"sleep 60", "kill -STOP $$", "while :; do sleep 0.02; done & wait"} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs = append(theirs, cmd)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	killed, err := KillAll(ctx, func(pid int) bool { return RunsAs(pid, uid) })
	if err != nil || killed < len(theirs) {
		t.Errorf("%d killed: %v", killed, err)
	}
	for _, cmd := range theirs {
		_ = cmd.Wait() // killed
	}
	if left, err := find(func(pid int) bool { return RunsAs(pid, uid) }); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if id, err := Of(other.Process.Pid); err != nil || !id.Alive() {
		t.Error("another user's process was killed")
	}
	if got := Args(other.Process.Pid); !slices.Equal(got, []string{"sleep", "60"}) {
		t.Errorf("arguments: %q", got)
	}
}
