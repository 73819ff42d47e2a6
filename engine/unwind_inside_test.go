package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// says starts a process with those arguments, as the user uid unless it is 0.
func says(t *testing.T, uid uint32, args ...string) int {
	t.Helper()
	cmd := &exec.Cmd{Path: "/bin/sh", Args: args, Dir: "/"} // it waits for its input
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	pid := testproc.Start(t, cmd).PID
	// The kernel shows a program's arguments a little after its start.
	for ctx := testdeadline.Context(t, 10*time.Second); len(procid.Args(pid)) < len(args); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
	}
	return pid
}

// TestProcessOf checks that all processes of a pod's users belong to it. Without users, processes of the engine's
// user that name the pod belong to it.
func TestProcessOf(t *testing.T) {
	t.Parallel()
	id, other := idOf("1"), idOf("2")
	mine, others := says(t, 0, "bulkhead-shim", "-s", id), says(t, 0, "bulkhead-shim", "-s", other)
	for name, tc := range map[string]struct {
		pid  int
		want bool
	}{
		"its shim": {mine, true}, "another's shim": {others, false}, "the engine": {os.Getpid(), false},
	} {
		if got := processOf(id, nil)(tc.pid); got != tc.want {
			t.Errorf("without users: %s: %v", name, got)
		}
		if processOf(id, []int{uids.First, uids.First + 1})(tc.pid) {
			t.Errorf("with users: %s", name)
		}
	}
	if os.Geteuid() != 0 {
		return // only root can start processes of other users
	}
	foreign := says(t, uids.First+1, "bulkhead-shim", "-s", id)
	for name, tc := range map[string]struct {
		owned []int
		want  bool
	}{
		"without users": {nil, false}, "another's": {[]int{uids.First}, false}, "its own": {[]int{uids.First, uids.First + 1}, true},
	} {
		if got := processOf(id, tc.owned)(foreign); got != tc.want {
			t.Errorf("process of another user, %s: got %t, want %t", name, got, tc.want)
		}
	}
}

// endingVMs ends VMs, or fails to.
type endingVMs struct {
	noVMs
	err   error
	ended int
}

func (v *endingVMs) End(context.Context, string) error {
	v.ended++
	return v.err
}

// TestEndShim checks that the VM ends even without a shim, and that failures are returned.
func TestEndShim(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		connect error
		errs    errs
		end     error
		dies    bool // the shim dies with the call
		fails   bool
		ended   int
		calls   []string
	}{
		{name: "answers", calls: []string{"ShutdownSandbox", "Ended"}},
		{name: "does not end", errs: errs{"Ended": {errInjected}}, fails: true, calls: []string{"ShutdownSandbox", "Ended"}},
		{name: "is not there", connect: shim.ErrNotRunning, ended: 1},
		{name: "is not there, nor can the VM be ended", connect: shim.ErrNotRunning, end: errInjected, ended: 1, fails: true},
		{name: "cannot be reached", connect: errInjected, fails: true},
		{name: "refuses", errs: errs{"ShutdownSandbox": {errInjected}}, fails: true, calls: []string{"ShutdownSandbox"}},
		{name: "dies", errs: errs{"ShutdownSandbox": {ttrpc.ErrClosed}}, dies: true, ended: 1, calls: []string{"ShutdownSandbox"}},
		{
			name: "dies, and the VM cannot be ended", errs: errs{"ShutdownSandbox": {ttrpc.ErrClosed}}, dies: true, end: errInjected,
			ended: 1, fails: true, calls: []string{"ShutdownSandbox"},
		},
	} {
		s := &scripted{errs: tc.errs, dead: tc.dies}
		e := reapEngine(t, &scriptedShims{shim: s, connect: []error{tc.connect}})
		vms := &endingVMs{err: tc.end}
		e.vms = vms
		err := e.endShim(t.Context(), idOf("1"))
		if errors.Is(err, errInjected) != tc.fails || (err != nil) != tc.fails || vms.ended != tc.ended {
			t.Errorf("%s: %d ended, %v", tc.name, vms.ended, err)
		}
		s.same(t, tc.calls...)
	}
}

// TestEndPod checks that the shim's answer counts for a pod without users, unless a process had to be killed.
func TestEndPod(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		errs  errs
		left  bool // a process that names the pod
		fails bool
		ended int
	}{
		{name: "ends by itself"},
		{name: "does not, and nothing is left", errs: errs{"ShutdownSandbox": {errInjected}}, fails: true},
		{name: "does not, and is killed", errs: errs{"ShutdownSandbox": {errInjected}}, left: true, ended: 1},
		{name: "says so, and is killed", left: true, ended: 1},
	} {
		e := reapEngine(t, &scriptedShims{shim: &scripted{errs: tc.errs}})
		vms := &endingVMs{err: errInjected} // no failure, as no VM is left
		e.vms = vms
		id, neighbour := store.NewID(), says(t, 0, "bulkhead-shim", "-s", store.NewID())
		if tc.left {
			says(t, 0, "bulkhead-shim", "-s", id)
		}
		if err := e.endPod(t.Context(), id); errors.Is(err, errInjected) != tc.fails || vms.ended != tc.ended {
			t.Errorf("%s: %d ended, %v", tc.name, vms.ended, err)
		}
		if err := syscall.Kill(neighbour, 0); err != nil {
			t.Errorf("%s: the neighbour: %v", tc.name, err)
		}
	}
	e := reapEngine(t, &scriptedShims{shim: &scripted{errs: errs{"ShutdownSandbox": {errInjected}}}})
	if err := os.WriteFile(e.o.Users, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.endPod(t.Context(), store.NewID()); !errors.Is(err, errInjected) || !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a pod with unknown users: %v", err)
	}
}

// TestUndoTransfer checks that the disk is not returned while the VM may write to it, or while its owner is busy.
func TestUndoTransfer(t *testing.T) {
	t.Parallel()
	from, id := idOf("1"), idOf("2")
	for _, tc := range []struct {
		name string
		args string // not a loan from the pod
		wait time.Duration
		do   func(e *Engine) error
		want string
	}{
		{name: "is given back", do: func(*Engine) error { return nil }},
		{name: "the owner is unknown", args: `{"from":"../1"}`, want: "not an id"},
		{
			name: "the VM may run", want: "may still run",
			do: func(e *Engine) error {
				_, err := e.store.Journal(id).Before(context.Background(), undoShim, struct{}{}, atomicfile.Volatile)
				return err
			},
		},
		{
			name: "the VM may still run", want: "journal",
			do: func(e *Engine) error { return os.Mkdir(filepath.Join(e.store.Dir(id), "journal"), 0o700) },
		},
		{
			name: "the pod is busy", want: context.DeadlineExceeded.Error(), wait: 10 * time.Millisecond,
			do: func(e *Engine) error { return e.pods[from].acquire(context.Background()) },
		},
		{
			name: "it has another one", want: "give the disk back",
			do: func(e *Engine) error {
				return os.MkdirAll(filepath.Join(e.store.Dir(from), "scratch.img", "full"), 0o700)
			},
		},
	} {
		e := reapEngine(t, &scriptedShims{})
		e.hold(newPod(e, putPod(t, e, from, store.Stopped)))
		putPod(t, e, id, store.Starting)
		disk := filepath.Join(e.store.Dir(id), "scratch.img")
		err := os.WriteFile(disk, nil, 0o600)
		args := tc.args
		if args == "" {
			raw, marshalErr := json.Marshal(disks.Loan{From: from})
			args, err = string(raw), errors.Join(err, marshalErr, tc.do(e))
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.wait, testdeadline.For(time.Minute)))
		err = e.handlers(id)[disks.Undo](ctx, json.RawMessage(args))
		cancel()
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if _, err := os.Lstat(disk); os.IsNotExist(err) != (tc.want == "") {
			t.Errorf("%s: the disk: %v", tc.name, err)
		}
	}
}

// TestUndoNetwork checks that the journal keeps a network that is unknown or unavailable.
func TestUndoNetwork(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	var asked []network.Kind
	e.networks = networks.New(func(kind network.Kind) (network.Provider, error) {
		asked = append(asked, kind)
		if kind == network.KindUser {
			return nil, errInjected
		}
		return network.None{}, nil
	})
	for args, fails := range map[string]bool{`{"kind":"none"}`: false, `{"kind":"user"}`: true, `{`: true} {
		if err := e.handlers(idOf("1"))[undoNetwork](t.Context(), json.RawMessage(args)); (err != nil) != fails {
			t.Errorf("%s: %v", args, err)
		}
	}
	slices.Sort(asked)
	if !slices.Equal(asked, []network.Kind{network.KindNone, network.KindUser}) {
		t.Errorf("asked for %q", asked)
	}
}
