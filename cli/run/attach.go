package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/cli/session"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// attachment joins this command's streams to the container of a foreground run that
// asks for them. The container does not wait for that: what it wrote before comes
// from its log. With a terminal the rest comes by the terminal, else from the log.
type attachment struct {
	container string
	tty       bool
	ended     chan error // gets the session's end; nil: nothing was joined

	// Output before asked comes by the log alone, and output after since by the terminal. Output between them may come by
	// both.
	asked, since time.Time
	logged       int64  // bytes of the log
	unshown      []byte // the first bytes of the log that were not printed

	mu     sync.Mutex // guards the following
	out    io.Writer  // the terminal
	live   int64      // bytes that came by the terminal alone
	first  []byte     // the first bytes that came by the terminal, as far as the log has not repeated them
	shown  int64      // bytes of the log that were printed
	either []byte     // those of them that may come by the terminal as well
}

// maxUnshown bounds each of attachment's slices: what can be written while the streams are
// being joined.
const maxUnshown = 64 << 10

// wanted says how a container is to be attached to, nil for not at all.
func (r *runner) wanted(in *api.Interactive) *attachment {
	switch {
	case in == nil:
		return nil
	case in.TTY && in.Stdin && tty.IsTerminal(r.app.In) && tty.IsTerminal(r.app.Out):
		return &attachment{container: in.Container, tty: true}
	case in.Stdin && r.stdin:
		return &attachment{container: in.Container}
	}
	return nil
}

// attach joins the streams. That it cannot be done is no error where the container
// has ended already.
func (r *runner) attach(ctx context.Context, uid string, in api.Interactive) {
	at := r.attached
	var s api.Stream
	req := api.AttachRequest{Container: at.container, Stdin: in.Stdin}
	at.asked = time.Now()
	err := r.app.Client.Call(ctx, "POST", r.app.PodPath(uid, "attach"), nil, req, &s)
	if err != nil {
		return
	}
	conn, err := session.Dial(ctx, s)
	if err != nil {
		return
	}
	at.since, at.ended = time.Now(), make(chan error, 1)
	streams := *r.app
	streams.Out, streams.Err = io.Discard, io.Discard
	if at.tty {
		at.out = r.app.Out
		streams.Out = at
	}
	go func() {
		at.ended <- session.Carry(ctx, &streams, conn, session.Options{Stdin: in.Stdin, TTY: at.tty, Redraw: true})
	}()
}

// log prints a piece of the log unless the terminal shows it. While a terminal is
// joined the output of other containers is left to bulkhead logs.
func (r *runner) log(l api.Log) error {
	at := r.attached
	if at == nil || !at.tty || at.ended == nil {
		return r.printer.Print(l)
	}
	if l.Container != at.container {
		return nil
	}
	at.logged += int64(len(l.Data))
	if l.Time.Before(at.since) {
		at.mu.Lock()
		defer at.mu.Unlock()
		if !l.Time.Before(at.asked) && at.repeats(l.Data) {
			return nil
		}
		at.shown += int64(len(l.Data))
		return r.printer.Print(l)
	}
	at.unshown = append(at.unshown, l.Data[:min(len(l.Data), maxUnshown-len(at.unshown))]...)
	return nil
}

// repeats reports whether the terminal has shown a piece of the log that may come by both. It is called with mu held.
func (at *attachment) repeats(data []byte) bool {
	if len(data) > 0 && bytes.HasPrefix(at.first, data) {
		at.first = at.first[len(data):]
		return true
	}
	at.either = append(at.either, data[:min(len(data), maxUnshown-len(at.either))]...)
	return false
}

// Write writes to the terminal what comes by it, without the beginning that the log has shown already.
func (at *attachment) Write(p []byte) (int, error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	fresh := p[overlap(at.either, p):]
	at.either = nil
	if _, err := at.out.Write(fresh); err != nil {
		return 0, err
	}
	at.live += int64(len(fresh))
	at.first = append(at.first, fresh[:min(len(fresh), maxUnshown-len(at.first))]...)
	return len(p), nil
}

// overlap is the length of the longest end of a that b begins with.
func overlap(a, b []byte) int {
	for n := min(len(a), len(b)); n > 0; n-- {
		if bytes.HasPrefix(b, a[len(a)-n:]) {
			return n
		}
	}
	return 0
}

// leave waits for the end of what was joined, once the pod has ended, and prints what
// neither the terminal nor the log has shown: what was written while the streams were
// being joined.
func (r *runner) leave(cancel context.CancelFunc) error {
	at := r.attached
	if at == nil || at.ended == nil {
		return nil
	}
	var err error
	select {
	case err = <-at.ended:
	case <-time.After(leavePatience):
		cancel()
		err = <-at.ended
	}
	// The log ends an unfinished last line, which the terminal does not.
	if missed := at.logged - at.shown - at.live; at.tty && missed > 1 {
		_, _ = r.app.Out.Write(at.unshown[:min(missed, int64(len(at.unshown)))]) // whoever read it has gone
	}
	// The pod's end tells the code, and its signals are told to the pod.
	if errors.As(err, new(app.ExitError)) || errors.Is(err, stream.ErrDetached) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// leavePatience bounds the wait for the last of a session whose pod has ended.
const leavePatience = 5 * time.Second
