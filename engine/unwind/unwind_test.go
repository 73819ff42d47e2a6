package unwind

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/ttrpc"

	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
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

// TestNamesPod checks that only the shim and the VM of the pod are recognised.
func TestNamesPod(t *testing.T) {
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		args []string
		want bool
	}{
		{[]string{"bulkhead-shim", "default", id}, true},
		{[]string{"/usr/bin/qemu", "-name", "bulkhead-bulkhead-0123456789ab", "-nodefaults"}, true},
		{[]string{"bulkhead-shim", "default", "f" + id[1:]}, false},
		{[]string{"bulkhead", "rm", id}, false},
		{[]string{"crictl", "rmp", id}, false},
		{[]string{"/usr/bin/qemu", "-name", "bulkhead-template-0123456789ab"}, false},
		{[]string{"/usr/bin/qemu", "-name"}, false},
		{[]string{"bulkhead-shim", "default"}, false},
		{[]string{"bulkhead-bulkhead-0123456789ab", "-nodefaults"}, false},
		{nil, false},
	} {
		if got := namesPod(test.args, id); got != test.want {
			t.Errorf("%q: %v", test.args, got)
		}
	}
}

// errInjected is the failure of a fake.
var errInjected = errors.New("injected")

// idOf returns an id that begins with a digit.
func idOf(digit string) string { return digit + strings.Repeat("0", 63) }

// shims are the only shim of a pod, with scripted answers.
type shims struct {
	link.Shims
	sandboxv1.TTRPCSandboxService
	connect, shutdown, ended error
	dead                     bool // the connection is closed
	calls                    []string
}

func (s *shims) Connect(context.Context, string) (*link.Conn, error) {
	done := make(chan struct{})
	if s.dead {
		close(done)
	}
	return &link.Conn{
		TTRPCSandboxService: s, Done: done, Close: func() error { return nil },
		Ended: func(context.Context) error { s.calls = append(s.calls, "Ended"); return s.ended },
	}, s.connect
}

func (s *shims) ShutdownSandbox(context.Context, *sandboxv1.ShutdownSandboxRequest) (*sandboxv1.ShutdownSandboxResponse, error) {
	s.calls = append(s.calls, "ShutdownSandbox")
	return &sandboxv1.ShutdownSandboxResponse{}, s.shutdown
}

// unwinder returns an Unwinder of an instance without pods.
func unwinder(t *testing.T, s *shims, v *endingVMs) *Unwinder {
	t.Helper()
	root := t.TempDir()
	st, err := store.Open(dirs.Roots{Data: filepath.Join(root, "d"), State: filepath.Join(root, "s")}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return &Unwinder{
		Store: st, Shims: s, VMs: v, Disks: disks.Disks{Store: st}, Users: filepath.Join(root, "users"),
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		Acquire: func(context.Context, string) (func(), error) { return func() {}, nil },
	}
}

// endingVMs ends VMs, or fails to.
type endingVMs struct {
	vms.Source
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
		name  string
		shim  shims
		end   error
		fails bool
		ended int
		calls []string
	}{
		{name: "answers", calls: []string{"ShutdownSandbox", "Ended"}},
		{name: "does not end", shim: shims{ended: errInjected}, fails: true, calls: []string{"ShutdownSandbox", "Ended"}},
		{name: "is not there", shim: shims{connect: shim.ErrNotRunning}, ended: 1},
		{name: "is not there, nor can the VM be ended", shim: shims{connect: shim.ErrNotRunning}, end: errInjected, ended: 1, fails: true},
		{name: "cannot be reached", shim: shims{connect: errInjected}, fails: true},
		{name: "refuses", shim: shims{shutdown: errInjected}, fails: true, calls: []string{"ShutdownSandbox"}},
		{name: "dies", shim: shims{shutdown: ttrpc.ErrClosed, dead: true}, ended: 1, calls: []string{"ShutdownSandbox"}},
		{
			name: "dies, and the VM cannot be ended", shim: shims{shutdown: ttrpc.ErrClosed, dead: true}, end: errInjected,
			ended: 1, fails: true, calls: []string{"ShutdownSandbox"},
		},
	} {
		vms := &endingVMs{err: tc.end}
		err := unwinder(t, &tc.shim, vms).endShim(t.Context(), idOf("1"))
		if errors.Is(err, errInjected) != tc.fails || (err != nil) != tc.fails || vms.ended != tc.ended {
			t.Errorf("%s: %d ended, %v", tc.name, vms.ended, err)
		}
		if !slices.Equal(tc.shim.calls, tc.calls) {
			t.Errorf("%s: calls %q, want %q", tc.name, tc.shim.calls, tc.calls)
		}
	}
}

// TestEndPod checks that the shim's answer counts for a pod without users, unless a process had to be killed.
func TestEndPod(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		shim  shims
		left  bool // a process that names the pod
		fails bool
		ended int
	}{
		{name: "ends by itself"},
		{name: "does not, and nothing is left", shim: shims{shutdown: errInjected}, fails: true},
		{name: "does not, and is killed", shim: shims{shutdown: errInjected}, left: true, ended: 1},
		{name: "says so, and is killed", left: true, ended: 1},
	} {
		vms := &endingVMs{err: errInjected} // no failure, as no VM is left
		u := unwinder(t, &tc.shim, vms)
		id, neighbour := store.NewID(), says(t, 0, "bulkhead-shim", "-s", store.NewID())
		if tc.left {
			says(t, 0, "bulkhead-shim", "-s", id)
		}
		if err := u.endPod(t.Context(), id); errors.Is(err, errInjected) != tc.fails || vms.ended != tc.ended {
			t.Errorf("%s: %d ended, %v", tc.name, vms.ended, err)
		}
		if err := syscall.Kill(neighbour, 0); err != nil {
			t.Errorf("%s: the neighbour: %v", tc.name, err)
		}
	}
	u := unwinder(t, &shims{shutdown: errInjected}, &endingVMs{})
	if err := os.WriteFile(u.Users, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := u.endPod(t.Context(), store.NewID()); !errors.Is(err, errInjected) || !errors.Is(err, syscall.ENOTDIR) {
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
		do   func(u *Unwinder) error
		want string
	}{
		{name: "is given back", do: func(*Unwinder) error { return nil }},
		{name: "the owner is unknown", args: `{"from":"../1"}`, want: "not an id"},
		{
			name: "the VM may run", want: "may still run",
			do: func(u *Unwinder) error {
				_, err := u.Store.Journal(id).Before(context.Background(), Shim, struct{}{}, atomicfile.Volatile)
				return err
			},
		},
		{
			name: "the VM may still run", want: "journal",
			do: func(u *Unwinder) error { return os.Mkdir(filepath.Join(u.Store.Dir(id), "journal"), 0o700) },
		},
		{
			name: "the pod is busy", want: context.DeadlineExceeded.Error(), wait: 10 * time.Millisecond,
			do: func(u *Unwinder) error {
				u.Acquire = func(ctx context.Context, id string) (func(), error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil
			},
		},
		{
			name: "it has another one", want: "give the disk back",
			do: func(u *Unwinder) error {
				return os.MkdirAll(filepath.Join(u.Store.Dir(from), "scratch.img", "full"), 0o700)
			},
		},
	} {
		u := unwinder(t, &shims{}, &endingVMs{})
		disk := filepath.Join(u.Store.Dir(id), "scratch.img")
		err := errors.Join(u.Store.MakePod(from), u.Store.MakePod(id), os.WriteFile(disk, nil, 0o600))
		args := tc.args
		if args == "" {
			raw, marshalErr := json.Marshal(disks.Loan{From: from})
			args, err = string(raw), errors.Join(err, marshalErr, tc.do(u))
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.wait, testdeadline.For(time.Minute)))
		err = u.Handlers(id)[disks.Undo](ctx, json.RawMessage(args))
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
	u := unwinder(t, &shims{}, &endingVMs{})
	var asked []network.Kind
	u.Networks = networks.New(func(kind network.Kind) (network.Provider, error) {
		asked = append(asked, kind)
		if kind == network.KindUser {
			return nil, errInjected
		}
		return network.None{}, nil
	})
	for args, fails := range map[string]bool{`{"kind":"none"}`: false, `{"kind":"user"}`: true, `{`: true} {
		if err := u.Handlers(idOf("1"))[Network](t.Context(), json.RawMessage(args)); (err != nil) != fails {
			t.Errorf("%s: %v", args, err)
		}
	}
	slices.Sort(asked)
	if !slices.Equal(asked, []network.Kind{network.KindNone, network.KindUser}) {
		t.Errorf("asked for %q", asked)
	}
}
