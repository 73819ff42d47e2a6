package sandbox

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/hostoom"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
)

// behaviours are requirements, and mistakes of earlier projects, each with the tests that cover it. A line names tests
// of this package or of its subpackages.
var behaviours = []struct{ line, tests string }{
	{"an id, a hypervisor, an agent, containers, a state, a lock; created, started, stopped, paused, resumed, deleted, restored",
		"TestLife TestPauseAndResumeSetTheClock TestRestore"},
	{"states ready, running, paused, stopped; an unexpected transition names both", "TestTransitionsNameBothStates"},
	{"one exclusive flock per pod across processes", "TestLockedByAnotherProcess"},
	{"config and state stored apart, per pod and per container; restored by any process", "TestStoredApart TestRestore"},
	{"every watcher is notified of the VM's death", "TestVMDiesUnderContainers"},
	{"containers may be added to a live pod later", "TestImagesShareSlots"},
	{"started is awaited with a deadline; then the agent", "TestSlowStartEndsAtItsDeadline TestLife"},
	{"memory is counted in MiB", "TestMemory"},
	{
		"not: a start deadline that leaks the VM; a start error dropped",
		"TestSlowStartEndsAtItsDeadline TestLateVMIsKilled TestFailedStartLeavesNothing",
	},
	{"not: failed start, then a stop that demands running", "TestFailedStartLeavesNothing"},
	{"not: a passing error of restore deletes the configuration", "TestPassingErrorOfRestoreDeletesNothing"},
	{"not: an unreadable state file read as ready", "TestDamagedFilesAreErrors"},
	{
		"not: delete that leaves the VM running; stop that skips it because the agent failed",
		"TestDeleteKillsTheVM TestStopDoesNotNeedTheAgent",
	},
	{"not: calls that return nil and do nothing; validation that is always true", "TestInvalidContainers TestContainerCalls"},
	{"not: containers in mixed states make the pod unstartable", "TestVMDiesUnderContainers"},
	{"not: partial state writes; directories of mode 0; lock descriptors leaked; locks without a deadline",
		"TestStoredApart TestLockedByAnotherProcess"},
	{"not: the configuration, environment included, written to the log", "TestNothingSecretIsKept"},
}

// TestBehaviours checks that every named test exists.
func TestBehaviours(t *testing.T) {
	parsed := map[string]bool{}
	var files []string
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "internal/*/*_test.go"} {
		some, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				parsed[fn.Name.Name] = true
			}
		}
	}
	for _, b := range behaviours {
		for name := range strings.FieldsSeq(b.tests) {
			if !parsed[name] {
				t.Errorf("%q: missing test %s", b.line, name)
			}
		}
	}
}

func TestLockedByAnotherProcess(t *testing.T) {
	t.Parallel()
	h := running(t)
	before := descriptors(t, filepath.Join(h.dir, "lock"))
	other, err := flock.Acquire(h.ctx, filepath.Join(h.dir, "lock")) // a second open file description excludes like another process
	h.must(err)
	done := make(chan error, 1)
	go func() { done <- h.box.CreateContainer(h.ctx, h.container("c")) }()
	select {
	case err := <-done:
		t.Errorf("written in spite of the lock: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	h.must(other.Unlock())
	h.must(<-done)
	if after := descriptors(t, filepath.Join(h.dir, "lock")); after != before {
		t.Errorf("%d descriptors of the lock, %d before", after, before)
	}
	if err := (&records.Store{Dir: t.TempDir() + "/none"}).Locked(func() error { return nil }); err == nil {
		t.Error("a lock in a missing directory was acquired")
	}
}

// descriptors counts the descriptors that this process has open for a path.
func descriptors(t *testing.T, path string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

func TestStoredApart(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	var got []string
	err := filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == h.dir || strings.HasSuffix(path, ".log") {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		got = append(got, strings.TrimPrefix(path, h.dir+"/"))
		return nil
	})
	h.must(err)
	want := "config.json containers containers/c containers/c/config.json containers/c/log containers/c/state.json lock state.json"
	if strings.Join(got, " ") != want {
		t.Errorf("on disk: %v", got)
	}
}

func TestNothingSecretIsKept(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-of-the-environment"
	h := prepare(t)
	var logged bytes.Buffer
	o := h.options()
	o.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	box, err := New(o)
	h.must(err)
	h.use(box)
	h.must(box.Create(h.ctx, h.config(), Files{}))
	h.must(box.Start(h.ctx))
	c := h.container("c")
	c.Spec = []byte(`{"process":{"env":["PASSWORD=` + secret + `"]}}`)
	h.must(box.CreateContainer(h.ctx, c))
	_, err = box.StartProcess(h.ctx, Process{Container: "c"})
	h.must(err)
	h.must(box.CreateExec(h.ctx, ExecConfig{Process: Process{Container: "c", Exec: "e"}, Spec: c.Spec, Stdio: containerv1.Stream{}}))
	h.must(filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s holds the environment", path)
		}
		return err
	}))
	h.must(box.Stop(h.ctx))
	box.Close()
	if strings.Contains(logged.String(), secret) {
		t.Error("the log holds the environment")
	}
}

// TestLateVMIsKilled covers a starter that ignores its deadline: its VM is killed.
func TestLateVMIsKilled(t *testing.T) {
	t.Parallel()
	h := prepare(t)
	o := h.options()
	o.BootTimeout = 20 * time.Millisecond
	vm := newFakeVM(t, h.agent)
	o.StartVM = func(ctx context.Context) (hypervisor.VM, error) {
		<-ctx.Done()
		return vm, nil
	}
	box, err := New(o)
	h.must(err)
	h.use(box)
	h.must(box.Create(h.ctx, h.config(), Files{}))
	if err := box.Start(h.ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v", err)
	}
	if !vm.killed {
		t.Error("the late VM still runs")
	}
}

func TestHostsOOMKiller(t *testing.T) {
	t.Parallel()
	count := filepath.Join(t.TempDir(), "v1")
	if err := os.WriteFile(count, []byte("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &liveVM{VM: newFakeVM(t, newFakeAgent()), OOM: hostoom.Count{File: count, Before: 2}}
	if reason, _ := m.Reason(); reason != ReasonOOMKilled {
		t.Errorf("reason %q", reason)
	}
	m.SetReason(ReasonStopped, "")
	if reason, _ := m.Reason(); reason != ReasonStopped {
		t.Errorf("after a requested kill: reason %q", reason)
	}
}
