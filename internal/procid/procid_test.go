package procid

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestLifeOfAProcess(t *testing.T) {
	cmd := start(t)
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !id.Alive() {
		t.Error("a running process is not alive")
	}
	if args, err := id.Args(); err != nil || !slices.Equal(args, []string{"sleep", "60"}) {
		t.Errorf("arguments: %q, %v", args, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := id.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for a running process: %v", err)
	}
	if err := id.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := id.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if id.Alive() {
		t.Error("a zombie is alive")
	}
	if args, err := id.Args(); !errors.Is(err, ErrGone) {
		t.Errorf("arguments of a zombie: %q, %v", args, err)
	}
	_ = cmd.Wait() // killed
	if err := id.Wait(ctx); err != nil {
		t.Errorf("wait for a process that is gone: %v", err)
	}
	if err := id.Signal(unix.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("signal to a process that is gone: %v", err)
	}
}

// The same pid with another start or boot is another process.
func TestReusedPidIsAnotherProcess(t *testing.T) {
	id, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]ID{
		"start": {id.PID, id.Start + 1, id.Boot},
		"boot":  {id.PID, id.Start, "another"},
		"zero":  {},
	} {
		if other.Alive() {
			t.Errorf("%s: taken for this process", name)
		}
		if args, err := other.Args(); !errors.Is(err, ErrGone) {
			t.Errorf("%s: arguments %q, %v", name, args, err)
		}
		if err := other.Signal(0); !errors.Is(err, ErrGone) {
			t.Errorf("%s: signal: %v", name, err)
		}
	}
}

// TestStopped: a process is stopped from SIGSTOP to SIGCONT.
func TestStopped(t *testing.T) {
	id, err := Of(start(t).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		signal  unix.Signal
		stopped bool
	}{{unix.SIGCONT, false}, {unix.SIGSTOP, true}, {unix.SIGCONT, false}} {
		if err := id.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); id.Stopped() != c.stopped; time.Sleep(time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("after %v stopped is %v", c.signal, !c.stopped)
			}
		}
	}
	if (ID{PID: 1}).Stopped() {
		t.Error("another process is taken for one that is stopped")
	}
}
