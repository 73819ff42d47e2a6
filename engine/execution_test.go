package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/bundle"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestExecEnd checks that a process that cannot be deleted is killed first, and that a failure is logged.
func TestExecEnd(t *testing.T) {
	t.Parallel()
	gone := failure.New(errdefs.ErrNotFound, "gone")
	all := []string{"Delete", "Kill 9", "Wait", "Delete"}
	for _, tc := range []struct {
		name  string
		errs  errs
		calls []string
		warns bool
	}{
		{name: "has ended", calls: all[:1]},
		{name: "is not there", errs: errs{"Delete": {gone}}, calls: all[:1]},
		{name: "runs", errs: errs{"Delete": {errInjected}}, calls: all},
		{name: "ends meanwhile", errs: errs{"Delete": {errInjected}, "Kill": {gone}}, calls: all},
		{name: "is forgotten meanwhile", errs: errs{"Delete": {errInjected, gone}}, calls: all},
		{name: "cannot be killed", errs: errs{"Delete": {errInjected}, "Kill": {errInjected}}, calls: all[:2], warns: true},
		{name: "does not end", errs: errs{"Delete": {errInjected}, "Wait": {errInjected}}, calls: all[:3], warns: true},
		{name: "cannot be forgotten", errs: errs{"Delete": {errInjected, errInjected}}, calls: all, warns: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.errs == nil {
				tc.errs = errs{}
			}
			tc.errs["Open"] = []error{errInjected}
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, ContainerRunning)
			var log bytes.Buffer
			c.pod.e.log = slog.New(slog.NewTextHandler(&log, nil))
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // the caller has given up
			served(t, c, s, "", 0)
			running, err := c.pod.e.Running(c.ID)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := running.Exec(ctx, process.Request{Command: []string{"x"}, Streams: process.Streams{Stdin: true}}); err == nil {
				t.Error("no error")
			}
			s.same(t, append([]string{"Exec", "Open"}, tc.calls...)...)
			if (log.Len() > 0) != tc.warns {
				t.Errorf("log: %s", &log)
			}
		})
	}
}

// served gives the pod's shim streams, and its container a bundle. A stream sends said, and stays open if exit is
// negative.
func served(t *testing.T, c *container, s *scripted, said string, exit int) {
	t.Helper()
	state := c.pod.e.store.StateDir(c.pod.id)
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Write(state, c.ID, &specs.Spec{Process: &specs.Process{Cwd: "/"}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	c.pod.conn.Streams = filepath.Join(state, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.pod.conn.Streams, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	server := stream.NewServer()
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s.token = func() (string, error) {
		return server.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
			return func(ctx context.Context, conn *net.UnixConn) {
				w := stream.NewWriter(conn)
				if exit < 0 {
					<-ctx.Done()
					return
				}
				_ = w.Frame(stream.Stdout, []byte(said))
				_ = w.Frame(stream.Exited, stream.EncodeExit(exit))
			}, nil
		})
	}
}

// TestExecSync checks the results of commands, and that the shim keeps no process.
func TestExecSync(t *testing.T) {
	t.Parallel()
	asked := []string{"Exec", "Open", "Start"}
	over := append(asked[:3:3], "Delete")
	for _, tc := range []struct {
		name  string
		state State
		errs  errs
		token func() (string, error)
		exec  uint32 // the exit code of a command that cannot be run
		exit  int
		limit int
		wait  time.Duration
		want  string
		fails string // the shim's error for a command that cannot be run
		code  int    // of an ExitError
		err   codes.Code
		calls []string
	}{
		{name: "ends well", want: "hello", calls: over},
		{name: "within its time", want: "hello", wait: time.Hour, calls: over},
		{name: "fails", exit: 3, want: "hello", code: 3, calls: over},
		{name: "is clipped", limit: 2, want: "he", calls: over},
		{name: "takes too long", exit: -1, wait: time.Millisecond, err: codes.DeadlineExceeded, calls: over},
		{
			name: "no such command", errs: errs{"Start": {errInjected}}, exec: 127,
			code: 127, fails: "injected\n", calls: append(asked[:3:3], "State", "Delete"),
		},
		{name: "is not started", errs: errs{"Start": {errInjected}}, err: codes.Unknown, calls: append(asked[:3:3], "State", "Delete")},
		{
			name: "the state is unknown", errs: errs{"Start": {errInjected}, "State": {errInjected}}, exec: 127,
			err: codes.Unknown, calls: append(asked[:3:3], "State", "Delete"),
		},
		{name: "is refused", errs: errs{"Exec": {errInjected}}, err: codes.Unknown, calls: asked[:1]},
		{name: "has no streams", errs: errs{"Open": {errInjected}}, err: codes.Unknown, calls: []string{"Exec", "Open", "Delete"}},
		{
			name: "has a stream that is none", token: func() (string, error) { return "none", nil },
			err: codes.Unknown, calls: []string{"Exec", "Open", "Delete"},
		},
		{name: "of one that does not run", state: ContainerExited, err: codes.FailedPrecondition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs, exec: &taskv3.StateResponse{ExitStatus: tc.exec}}
			c := scriptedPod(t, s, or(tc.state, ContainerRunning))
			served(t, c, s, "hello", tc.exit)
			if tc.token != nil {
				s.token = tc.token
			}
			var out, errOut []byte
			running, err := c.pod.e.Running(c.ID)
			switch {
			case err != nil:
			case tc.limit > 0:
				out, errOut, err = running.Clipped(t.Context(), []string{"x"}, tc.wait, tc.limit)
			default:
				out, errOut, err = running.Output(t.Context(), []string{"x"}, tc.wait)
			}
			var exited *process.ExitError
			if errors.As(err, &exited) != (tc.code != 0) || exited != nil && exited.ExitStatus() != tc.code {
				t.Errorf("%v", err)
			}
			if tc.code == 0 && codeOf(err) != tc.err {
				t.Errorf("%v", err)
			}
			if string(out) != tc.want || string(errOut) != tc.fails {
				t.Errorf("%q, %q", out, errOut)
			}
			s.same(t, tc.calls...)
		})
	}
}

// TestExecGone checks that a cancelled caller leaves no command behind.
func TestExecGone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := &scripted{on: map[string]func(){"Start": cancel}}
	c := scriptedPod(t, s, ContainerRunning)
	served(t, c, s, "", -1)
	running, err := c.pod.e.Running(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := running.Output(ctx, []string{"x"}, 0); codeOf(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	s.same(t, "Exec", "Open", "Start", "Delete")
}

// TestExecStream checks that a stream is required, that a terminal has no stderr, and that a command without
// streams is deleted.
func TestExecStream(t *testing.T) {
	t.Parallel()
	type streams = process.Streams
	for _, tc := range []struct {
		name  string
		tty   bool
		in    streams
		state State
		errs  errs
		code  codes.Code
		want  []bool // stdin, stdout, stderr
		calls []string
	}{
		{name: "all", in: streams{Stdin: true, Stdout: true, Stderr: true}, want: []bool{true, true, true}, calls: []string{"Exec", "Open"}},
		{name: "stdin", in: streams{Stdin: true}, want: []bool{true, false, false}, calls: []string{"Exec", "Open"}},
		{name: "stdout", in: streams{Stdout: true}, want: []bool{false, true, false}, calls: []string{"Exec", "Open"}},
		{name: "stderr", in: streams{Stderr: true}, want: []bool{false, false, true}, calls: []string{"Exec", "Open"}},
		{
			name: "a terminal", tty: true, in: streams{Stdout: true, Stderr: true},
			want: []bool{false, true, false}, calls: []string{"Exec", "Open"},
		},
		{name: "none", code: codes.InvalidArgument},
		{name: "does not run", in: streams{Stdin: true}, state: ContainerCreated, code: codes.FailedPrecondition},
		{name: "is refused", in: streams{Stdin: true}, errs: errs{"Exec": {errInjected}}, code: codes.Unknown, calls: []string{"Exec"}},
		{
			name: "has no streams", in: streams{Stdin: true}, errs: errs{"Open": {errInjected}}, code: codes.Unknown,
			want: []bool{true, false, false}, calls: []string{"Exec", "Open", "Delete"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got []bool
			s := &scripted{errs: tc.errs, opened: func(r *shimv1.OpenRequest) { got = []bool{r.Stdin, r.Stdout, r.Stderr} }}
			c := scriptedPod(t, s, or(tc.state, ContainerRunning))
			served(t, c, s, "", 0)
			var at Stream
			running, err := c.pod.e.Running(c.ID)
			if err == nil {
				at, err = running.Exec(t.Context(), process.Request{Command: []string{"x"}, TTY: tc.tty, Streams: tc.in})
			}
			if codeOf(err) != tc.code || (at.Token != "") != (err == nil) || !slices.Equal(got, tc.want) {
				t.Errorf("opened %v: %+v, %v", got, at, err)
			}
			s.same(t, tc.calls...)
		})
	}
}

// TestExecWithoutBundle checks that an invalid command, or one of a container without a bundle, is refused before a
// call to the shim.
func TestExecWithoutBundle(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	c := scriptedPod(t, s, ContainerRunning)
	running, err := c.pod.e.Running(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = running.Exec(t.Context(), process.Request{Command: []string{"x"}, Streams: process.Streams{Stdin: true}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	served(t, c, s, "", 0)
	if _, err := running.Exec(t.Context(), process.Request{Streams: process.Streams{Stdin: true}}); err == nil {
		t.Error("no command")
	}
	s.same(t)
}
