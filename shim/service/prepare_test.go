package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// prepare registers a command in a container and requests a token for its start.
func (r *rig) prepare(t *testing.T) (sandbox.Process, *shimv1.OpenResponse) {
	t.Helper()
	r.create(t, "c")
	_, err := r.task.Exec(t.Context(), &taskv3.ExecProcessRequest{
		ID: "c", ExecID: "e", Stdin: "stream:", Stdout: "stream:", Spec: &anypb.Any{Value: []byte("{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.extension.Open(t.Context(), &shimv1.OpenRequest{
		ContainerId: "c", ExecId: "e", Stdin: true, Stdout: true, Stderr: true, Start: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Process{Container: "c", Exec: "e"}, res
}

// drained waits for the streams to end, and checks that the process is deleted.
func (r *rig) drained(t *testing.T, p sandbox.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.streams.Drain(ctx)
	if _, err := r.fake.ProcessStatus(p); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("not forgotten: %v", err)
	}
	if n := r.services.Remembered(); n != 1 { // the container's own
		t.Errorf("%d processes are remembered", n)
	}
}

// TestPreparedRunsForItsClient: a prepared command runs when its client connects, not before.
func TestPreparedRunsForItsClient(t *testing.T) {
	r := start(t)
	p, token := r.prepare(t)
	if st, err := r.fake.ProcessStatus(p); err != nil || st.State != sandbox.Ready {
		t.Fatalf("before its client it is %s, %v", st.State, err)
	}
	conn, err := stream.Dial(t.Context(), token.Address, token.Token)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code, err := stream.Stdio{Stdin: strings.NewReader("x"), Stdout: &out}.Run(t.Context(), conn)
	if code != 3 || err != nil || out.String() != "x" {
		t.Errorf("code %d, %v, output %q", code, err, out.String())
	}
	if _, err := stream.Dial(t.Context(), token.Address, token.Token); !errors.Is(err, stream.ErrRefused) {
		t.Errorf("a second client of the same token: %v", err)
	}
	r.drained(t, p)
	if calls := r.fake.noted(); !slices.Equal(calls, []string{"started", "deleted "}) {
		t.Errorf("calls %q", calls)
	}
}

// TestPreparedIsForgottenWithItsEngine: when the engine that prepared a command is gone, the command is deleted and
// never runs.
func TestPreparedIsForgottenWithItsEngine(t *testing.T) {
	r := start(t)
	var engines [2]*ttrpc.Client
	for i := range engines {
		conn, err := net.Dial("unix", filepath.Join(r.dir, "api"))
		if err != nil {
			t.Fatal(err)
		}
		engines[i] = ttrpc.NewClient(conn)
		defer engines[i].Close()
		events, err := shimv1.NewExtensionClient(engines[i]).Events(t.Context(), &shimv1.EventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	p, token := r.prepare(t)
	// A stream of another kind is not deleted.
	console, err := r.extension.Open(t.Context(), &shimv1.OpenRequest{ContainerId: "c", Stdin: true, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	engines[0].Close()
	time.Sleep(50 * time.Millisecond) // time for an unwanted deletion
	if _, err := r.fake.ProcessStatus(p); err != nil {
		t.Fatalf("deleted although a subscriber is connected: %v", err)
	}
	engines[1].Close()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := r.fake.ProcessStatus(p); err != nil {
			break
		}
	}
	if _, err := stream.Dial(t.Context(), token.Address, token.Token); !errors.Is(err, stream.ErrRefused) {
		t.Errorf("a client of a deleted command: %v", err)
	}
	conn, err := stream.Dial(t.Context(), console.Address, console.Token)
	if err != nil {
		t.Fatalf("a client of another stream: %v", err)
	}
	conn.Close()
	r.drained(t, p)
	if calls := r.fake.noted(); !slices.Contains(calls, "deleted "+sandbox.ReasonNeverStarted) || slices.Contains(calls, "started") {
		t.Errorf("calls %q", calls)
	}
}

// TestPreparedThatCannotRun: the client of a command that cannot run receives exit code and reason over its stream. Any
// other refusal is an error.
func TestPreparedThatCannotRun(t *testing.T) {
	cannot := func(code int) *sandbox.Exit {
		return &sandbox.Exit{Code: code, Reason: sandbox.ReasonCannotRun, Message: "exec: x: no"}
	}
	for name, tc := range map[string]struct {
		exit     *sandbox.Exit
		terminal bool
		code     int // 0 for an error
	}{
		"not there":               {exit: cannot(127), code: 127},
		"not there, a terminal":   {exit: cannot(127), code: 127, terminal: true},
		"not a program":           {exit: cannot(126), code: 126},
		"no code of a shell's":    {exit: &sandbox.Exit{Code: 128, Reason: sandbox.ReasonCannotRun}},
		"ended for other reasons": {exit: &sandbox.Exit{Code: 127, Reason: sandbox.ReasonVMKilled}},
		"not ended":               {},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			r.create(t, "c")
			r.fake.refuse, r.fake.cannot = fmt.Errorf("start: %w", agentv1.ErrNoCommand), tc.exit
			p := sandbox.Process{Container: "c", Exec: "e"}
			if err := r.fake.CreateExec(t.Context(), sandbox.ExecConfig{Process: p}); err != nil {
				t.Fatal(err)
			}
			conn := r.open(t, &shimv1.OpenRequest{ContainerId: "c", ExecId: "e", Stdout: true, Stderr: !tc.terminal, Start: true})
			var out, errOut bytes.Buffer
			code, err := stream.Stdio{Stdout: &out, Stderr: &errOut}.Run(t.Context(), conn)
			told, silent := errOut.String(), out.String()
			if tc.terminal {
				told, silent = silent, told
			}
			if tc.code == 0 { // the client prints the error
				if err == nil || err.Error() != "start: executable not found" || told != "" {
					t.Errorf("code %d, %v, told %q", code, err, told)
				}
			} else if code != tc.code || err != nil || strings.TrimRight(told, "\r\n") != "bulkhead: exec: x: no" ||
				strings.HasSuffix(told, "\r\n") != tc.terminal {
				t.Errorf("code %d, %v, told %q", code, err, told)
			}
			if silent != "" {
				t.Errorf("written to the other channel: %q", silent)
			}
			r.drained(t, p)
		})
	}
}

// TestPreparedThatIsGone: the client of a deleted command gets an error.
func TestPreparedThatIsGone(t *testing.T) {
	r := start(t)
	p, token := r.prepare(t)
	if _, err := r.task.Delete(t.Context(), &taskv3.DeleteRequest{ID: p.Container, ExecID: p.Exec}); err != nil {
		t.Fatal(err)
	}
	conn, err := stream.Dial(t.Context(), token.Address, token.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (stream.Stdio{Stdout: io.Discard}).Run(t.Context(), conn); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("the client got %v", err)
	}
	r.drained(t, p)
}

func TestPrepareRefuses(t *testing.T) {
	r := start(t)
	p, conn := r.joinExec(t)
	defer conn.Close()
	for name, tc := range map[string]struct {
		request *shimv1.OpenRequest
		want    codes.Code
	}{
		"a container":       {&shimv1.OpenRequest{ContainerId: "c", Start: true}, codes.InvalidArgument},
		"the console":       {&shimv1.OpenRequest{Kind: shimv1.OpenRequest_CONSOLE, ExecId: "e", Start: true}, codes.InvalidArgument},
		"one that runs":     {&shimv1.OpenRequest{ContainerId: p.Container, ExecId: p.Exec, Start: true}, codes.FailedPrecondition},
		"one that is not":   {&shimv1.OpenRequest{ContainerId: "c", ExecId: "none", Start: true}, codes.NotFound},
		"none of container": {&shimv1.OpenRequest{ContainerId: "none", ExecId: p.Exec, Start: true}, codes.NotFound},
	} {
		_, err := r.extension.Open(t.Context(), tc.request)
		wantCode(t, name, err, tc.want)
	}
}
