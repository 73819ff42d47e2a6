package containerd

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// faults kills each process behind a task. A task without its VM or front ends as if it were killed. Without its shim or
// engine, it runs on.
func faults(t *testing.T, n *node) {
	for program, survives := range map[string]bool{
		"containerd-shim-bulkhead-v2": false, "qemu-system-x86_64": false, "bulkhead-surrogate": false,
		"bulkhead-shim": true, "bulkhead-engine": true,
	} {
		t.Run(program, func(t *testing.T) { n.fault(t, program, survives) })
	}
	t.Run("slow removal", n.slowRemoval)
}

// slowRemoval kills a front while the engine hangs. Containerd gets its answer in time, and the removal goes on afterwards.
func (n *node) slowRemoval(t *testing.T) {
	n.removeAtEnd(t, "slow")
	events := n.watch(t)
	n.run(t, "", "-d", image, "slow", "/bin/sleep", "1000")
	engine := running(t, "bulkhead-engine")[0]
	if err := engine.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := engine.Signal(unix.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	if err := running(t, "containerd-shim-bulkhead-v2")[0].Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := events("delete slow"); !slices.Contains(got, "exit slow") {
		t.Errorf("events %q", got)
	}
}

func (n *node) fault(t *testing.T, program string, survives bool) {
	n.removeAtEnd(t, "c")
	events := n.watch(t)
	before := running(t, program)
	n.run(t, "", "-d", image, "c", "/bin/sleep", "1000")
	killed := 0
	for _, p := range running(t, program) {
		if program != "bulkhead-engine" && slices.Contains(before, p) {
			continue // another VM's
		}
		if err := p.Signal(unix.SIGKILL); err != nil {
			t.Error(err)
		}
		killed++
	}
	if killed == 0 {
		t.Fatalf("%s does not run", program)
	}
	if survives {
		n.exec(t, "c")
		n.ctr(t, "", "task", "kill", "-s", "KILL", "c")
	}
	began := time.Now()
	events("exit c")
	t.Logf("the exit came after %v", time.Since(began))
	_, err := n.try(testdeadline.Context(t, 20*time.Second), "", "task", "delete", "c")
	if err != nil && !strings.Contains(err.Error(), "not found") { // containerd deletes the task of a lost front
		t.Error(err)
	}
	n.ctr(t, "", "container", "delete", "c")
	got := slices.DeleteFunc(events("delete c"), func(e string) bool { return strings.HasPrefix(e, "exec") || strings.HasPrefix(e, "exit e") })
	if want := []string{"create c", "start c", "exit c", "delete c"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// removeAtEnd removes tasks and containers at the test's end, if they exist then.
func (n *node) removeAtEnd(t *testing.T, ids ...string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(20*time.Second))
		defer cancel()
		for _, id := range ids {
			_, _ = n.try(ctx, "", "task", "delete", "--force", id)
			_, _ = n.try(ctx, "", "container", "delete", id)
		}
	})
}

// exec runs a program in a container, as soon as another shim serves its VM.
func (n *node) exec(t *testing.T, id string) {
	t.Helper()
	ctx := testdeadline.Context(t, 20*time.Second)
	for i := 0; ; i++ {
		r, err := n.try(ctx, "", "task", "exec", "--exec-id", fmt.Sprint("e", i), id, "/bin/echo", "hello")
		if err == nil && r.stdout == "hello\n" {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("exec: %q, %v", r.stdout, err)
		}
	}
}

// restart kills containerd and starts it again. It finds a task that runs on, and one that has ended meanwhile.
func restart(t *testing.T, n *node) {
	n.removeAtEnd(t, "c", "away")
	n.run(t, "", "-d", image, "c", "/bin/sleep", "1000")
	n.run(t, "", "-d", image, "away", "/bin/sh", "-c", "until test -e /end; do sleep 0.02; done; exit 5")
	bundle := n.path("state/io.containerd.runtime.v2.task/" + namespace + "/away")
	n.kill(t)
	if err := os.WriteFile(bundle+"/rootfs/end", nil, 0o600); err != nil {
		t.Error(err)
	}
	for ctx := testdeadline.Context(t, 10*time.Second); bootstrap.ReadExit(bundle).Status != 5; <-time.After(5 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("the task has not ended: %+v", bootstrap.ReadExit(bundle))
		}
	}
	n.start(t)
	for id, want := range map[string]string{"c": "RUNNING", "away": "STOPPED"} {
		if got := n.ctr(t, "", "task", "ls"); !regexp.MustCompile(`(?m)^` + id + ` .*` + want).MatchString(got) {
			t.Errorf("%s must be %s: %s", id, want, got)
		}
	}
	n.exec(t, "c")
	r, err := n.try(testdeadline.Context(t, 20*time.Second), "", "task", "delete", "away")
	if err != nil || !strings.Contains(r.stderr, "exit code 5") {
		t.Errorf("delete of the task that ended: %q, %v", r.stderr, err)
	}
}
