package service

import (
	"context"
	"net"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// prepare returns a token for a registered process, which runs when the token is used. If the token is not used, the
// process is deleted.
func (e extension) prepare(r *shimv1.OpenRequest) (string, error) {
	p := sandbox.Process{Container: r.ContainerId, Exec: r.ExecId}
	if r.Kind != shimv1.OpenRequest_ATTACH || p.Exec == "" {
		return "", invalid("only an exec'd process can be started by its client")
	}
	st, err := e.o.Sandbox.ProcessStatus(p)
	if err != nil {
		return "", err
	}
	if st.State != sandbox.Ready {
		subject := "process " + p.Container + "/" + p.Exec
		return "", &sandbox.StateError{Subject: subject, Action: "prepare", State: st.State, Want: []sandbox.State{sandbox.Ready}}
	}
	handler := func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return func(ctx context.Context, conn *net.UnixConn) { e.run(ctx, conn, p, r) }, nil
	}
	return e.o.Streams.Prepare(handler, func() { e.Discard(e.ctx, p) })
}

// run starts a prepared process for its client, and serves its streams.
func (e extension) run(ctx context.Context, conn *net.UnixConn, p sandbox.Process, r *shimv1.OpenRequest) {
	err := e.start(ctx, p)
	if err == nil {
		e.serveClient(ctx, conn, p, r)
		return
	}
	w := stream.NewWriter(conn)
	// Failures that a shell reports as exit codes are exit codes. Any other refusal is an error.
	if exit := e.refused(p); exit != nil {
		channel, end := stream.Stderr, "\n"
		if !r.Stderr {
			channel, end = stream.Stdout, "\r\n" // a terminal
		}
		_ = w.Frame(channel, []byte("bulkhead: "+exit.Message+end))
		_ = w.Frame(stream.Exited, stream.EncodeExit(exit.Code))
	} else {
		finish(w, sandbox.Exit{}, err)
	}
	e.Discard(ctx, p)
}

// refused returns the exit of a process with a missing command or one that cannot be executed, as a shell reports it.
// It returns nil for any other process.
func (s *Services) refused(p sandbox.Process) *sandbox.Exit {
	st, err := s.o.Sandbox.ProcessStatus(p)
	if err != nil || st.Exit == nil || st.Exit.Reason != sandbox.ReasonCannotRun || st.Exit.Code != 126 && st.Exit.Code != 127 {
		return nil
	}
	return st.Exit
}
