package clients

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var signalCases = []contractCase{
	{"signals by number and name", signals},
	{"a signal that ends", signalEnds},
	{"kill before start", killCreated},
	{"kill of a stopped container", killStopped},
	{"kill of all processes", killAll},
	{"pause and resume", pauses},
	{"kill of a paused container", killPaused},
	{"signals to the process", signalProcess},
}

// signals: podman and docker send numbers, CRI-O names.
func signals(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", script(
		"for s in HUP INT QUIT USR1 USR2 TERM WINCH; do trap \"echo $s\" $s; done; echo started; while :; do sleep 0.01; done"))
	k.stdout.await(ctx, t, "started\n")
	want := "started\n"
	for _, s := range []struct{ sent, name string }{
		{"USR1", "USR1"}, {"SIGUSR2", "USR2"}, {strconv.Itoa(int(unix.SIGHUP)), "HUP"}, {"winch", "WINCH"}, {"", "TERM"}, {"2", "INT"},
		{"QUIT", "QUIT"},
	} {
		args := []string{"kill", "c"}
		if s.sent != "" {
			args = append(args, s.sent)
		}
		c.do(ctx, t, args...)
		want += s.name + "\n"
		k.stdout.await(ctx, t, want)
	}
	c.fails(ctx, t, 1, `unknown signal "FOO"`, "kill", "c", "FOO")
	c.fails(ctx, t, 1, "invalid argument", "kill", "c", "99")
	c.do(ctx, t, "kill", "c", "0") // whether it can be signalled
	c.do(ctx, t, "kill", "c", "9")
	k.expectSignal(ctx, t, unix.SIGKILL)
}

// signalEnds: the process of the pid file ends by the signal that ended the container's.
func signalEnds(ctx context.Context, t *testing.T, c *contract) {
	for _, s := range []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGUSR1, unix.SIGSEGV} {
		// A first process is immune to signals that it does not handle, unless it shares the pid namespace.
		k := c.start(ctx, t, fmt.Sprintf("c%d", s), script(fmt.Sprintf("sh -c 'kill -%d $$'; exit $?", s)))
		k.expectExit(ctx, t, 128+int(s))
	}
	k := c.start(ctx, t, "c", script("echo started; exec sleep 1000"))
	k.stdout.await(ctx, t, "started\n") // before, it is the runtime's own program, which a signal ends
	c.do(ctx, t, "kill", "c", "TERM")
	if s := c.state(ctx, t, "c"); s.Status != specs.StateRunning {
		t.Errorf("after a signal that it does not handle, the first process is %s", s.Status)
	}
	c.do(ctx, t, "kill", "c", "SIGKILL")
	k.expectSignal(ctx, t, unix.SIGKILL)
}

// killCreated: kill ends a container that was not started.
func killCreated(ctx context.Context, t *testing.T, c *contract) {
	k := c.create(ctx, t, "c", writeBundle(t, newSpec("sleep", "1000")))
	c.do(ctx, t, "kill", "c", "KILL")
	k.expectSignal(ctx, t, unix.SIGKILL)
	c.awaitStatus(ctx, t, "c", specs.StateStopped)
	c.fails(ctx, t, 1, "cannot start a container that has stopped", "start", "c")
	c.do(ctx, t, "delete", "c")
}

// killStopped: kill of a container that has ended fails, and kill --all does not.
func killStopped(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", newSpec("true"))
	k.expectExit(ctx, t, 0)
	c.fails(ctx, t, 1, "container not running", "kill", "c", "KILL")
	c.do(ctx, t, "kill", "--all", "c", "KILL")
}

// killAll: containerd's shim sends signals to all processes of containers that share the pid namespace.
func killAll(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", script(
		"sh -c 'trap \"echo child; exit\" USR1; echo started; while :; do sleep 0.01; done' & trap 'wait; exit 5' USR1; wait"))
	k.stdout.await(ctx, t, "started\n")
	c.do(ctx, t, "kill", "-a", "c", "USR1")
	k.stdout.await(ctx, t, "child\n")
	k.expectExit(ctx, t, 5)
}

// pauses: a paused container does nothing, and goes on when it is resumed.
func pauses(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", script("i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done"))
	k.stdout.await(ctx, t, "5\n")
	c.do(ctx, t, "pause", "c")
	if s := c.state(ctx, t, "c"); s.Status != "paused" || s.Pid != k.pid {
		t.Errorf("state of a paused container: %s, pid %d", s.Status, s.Pid)
	}
	c.fails(ctx, t, 1, "container not running", "pause", "c")
	c.fails(ctx, t, 255, "cannot exec in a paused container (use --ignore-paused to override)", "exec", "c", "true")
	before := strings.Count(k.stdout.text(), "\n")
	// While the container is paused, further commands take more time than one of its steps.
	c.state(ctx, t, "c")
	c.do(ctx, t, "list")
	c.state(ctx, t, "c")
	if after := strings.Count(k.stdout.text(), "\n"); after > before+1 { // one may have been on its way
		t.Errorf("the paused container wrote %d lines", after-before)
	}
	c.do(ctx, t, "resume", "c")
	k.stdout.await(ctx, t, fmt.Sprintf("\n%d\n", before+20))
	if s := c.state(ctx, t, "c"); s.Status != specs.StateRunning {
		t.Errorf("state after resume: %s", s.Status)
	}
	c.fails(ctx, t, 1, "container not paused", "resume", "c")
}

// killPaused: delete --force ends a paused container.
func killPaused(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", newSpec("sleep", "1000"))
	c.do(ctx, t, "pause", "c")
	c.do(ctx, t, "delete", "--force", "c")
	k.expectSignal(ctx, t, unix.SIGKILL)
}

// signalProcess: a signal to the process of the pid file reaches the container's first process.
func signalProcess(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", script("trap 'echo signal' USR1; trap 'exit 8' TERM; echo started; while :; do sleep 0.01; done"))
	k.stdout.await(ctx, t, "started\n")
	for _, s := range []unix.Signal{unix.SIGUSR1, unix.SIGTERM} {
		if err := unix.Kill(k.pid, s); err != nil {
			t.Fatal(err)
		}
		if s == unix.SIGUSR1 {
			k.stdout.await(ctx, t, "signal\n")
		}
	}
	k.expectExit(ctx, t, 8)
}
