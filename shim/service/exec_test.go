package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// joinExec runs a command in a container and connects to its stdin and stdout.
func (r *rig) joinExec(t *testing.T) (sandbox.Process, net.Conn) {
	t.Helper()
	r.create(t, "c")
	p := sandbox.Process{Container: "c", Exec: "e"}
	if err := r.fake.CreateExec(t.Context(), sandbox.ExecConfig{Process: p}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.fake.StartProcess(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p, r.join(t, p)
}

// dial requests a stream, which must succeed, and connects to it.
func (r *rig) dial(t *testing.T, request *shimv1.OpenRequest) (net.Conn, error) {
	t.Helper()
	res, err := r.extension.Open(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return stream.Dial(t.Context(), res.Address, res.Token)
}

// open opens a stream.
func (r *rig) open(t *testing.T, request *shimv1.OpenRequest) net.Conn {
	t.Helper()
	conn, err := r.dial(t, request)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// join connects to the stdin and stdout of a command.
func (r *rig) join(t *testing.T, p sandbox.Process) net.Conn {
	t.Helper()
	return r.open(t, &shimv1.OpenRequest{ContainerId: p.Container, ExecId: p.Exec, Stdin: true, Stdout: true})
}

// TestToldExecIsForgotten: a command is deleted once its client has its exit code. After many commands in sequence,
// none is left.
func TestToldExecIsForgotten(t *testing.T) {
	r := start(t)
	p, conn := r.joinExec(t)
	if code, err := (stream.Stdio{Stdin: strings.NewReader("x"), Stdout: io.Discard}).Run(t.Context(), conn); code != 3 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.streams.Drain(ctx)
	if _, err := r.fake.ProcessStatus(p); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("not forgotten: %v", err)
	}
}

// TestToldExecLeavesNothing: the services also drop the names of finished commands, whoever deletes them first.
func TestToldExecLeavesNothing(t *testing.T) {
	r := start(t)
	r.create(t, "c")
	before := r.services.Remembered()
	for _, id := range []string{"told", "deleted", "gone"} {
		p := sandbox.Process{Container: "c", Exec: id}
		_, err := r.task.Exec(t.Context(), &taskv3.ExecProcessRequest{
			ID:     p.Container,
			ExecID: p.Exec,
			Stdin:  "stream:",
			Stdout: "stream:",
			Spec:   &anypb.Any{Value: []byte("{}")},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.task.Start(t.Context(), &taskv3.StartRequest{ID: p.Container, ExecID: p.Exec}); err != nil {
			t.Fatal(err)
		}
		switch id {
		case "told":
			conn := r.join(t, p)
			if code, err := (stream.Stdio{Stdin: strings.NewReader("x"), Stdout: io.Discard}).Run(t.Context(), conn); code != 3 || err != nil {
				t.Errorf("code %d, %v", code, err)
			}
			continue
		case "gone":
			err = r.fake.SignalProcess(t.Context(), p, 9, false)
			if err == nil {
				_, err = r.fake.DeleteProcess(t.Context(), p)
			}
		default:
			err = r.fake.SignalProcess(t.Context(), p, 9, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.task.Delete(t.Context(), &taskv3.DeleteRequest{ID: p.Container, ExecID: p.Exec}); (err != nil) != (id == "gone") {
			t.Errorf("delete the one that is %s: %v", id, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.streams.Drain(ctx)
	if after := r.services.Remembered(); after != before {
		t.Errorf("%d processes are remembered, not %d", after, before)
	}
}

// TestLostClientHangsUp: a command gets SIGHUP if its client disconnects, but not if the client leaves.
func TestLostClientHangsUp(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(conn net.Conn) error
		hungUp bool
	}{
		"gone": {func(conn net.Conn) error { return conn.Close() }, true},
		"gone, its input unread": {func(conn net.Conn) error {
			in := stream.NewWriter(conn)
			for range 3 { // the command reads none
				if err := in.Frame(stream.Stdin, make([]byte, stream.MaxFrame)); err != nil {
					return err
				}
			}
			return conn.Close()
		}, true},
		"left": {func(conn net.Conn) error {
			if _, err := (stream.Stdio{Stdin: leaver{}}).Run(t.Context(), conn); !errors.Is(err, stream.ErrLeft) {
				return fmt.Errorf("not left: %w", err)
			}
			return nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			r.fake.deaf = name == "gone, its input unread"
			p, conn := r.joinExec(t)
			if err := tc.end(conn); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if r.streams.Drain(ctx); ctx.Err() != nil {
				t.Error("the stream does not end")
			}
			st, err := r.fake.ProcessStatus(p)
			if err != nil || (st.Exit != nil) != tc.hungUp || st.Exit != nil && st.Exit.Code != 128+1 {
				t.Errorf("ended with %v, %v", st.Exit, err)
			}
		})
	}
}

// TestLostClientOfNothing: a lost client does not signal a command that does not run.
func TestLostClientOfNothing(t *testing.T) {
	r := start(t)
	r.create(t, "c")
	p := sandbox.Process{Container: "c", Exec: "e"}
	if err := r.fake.CreateExec(t.Context(), sandbox.ExecConfig{Process: p}); err != nil {
		t.Fatal(err)
	}
	if err := r.join(t, p).Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.streams.Drain(ctx)
	if st, err := r.fake.ProcessStatus(p); err != nil || st.State != sandbox.Ready {
		t.Errorf("%s, %v", st.State, err)
	}
}

// leaver leaves at once.
type leaver struct{}

func (leaver) Read([]byte) (int, error) { return 0, stream.ErrLeft }
