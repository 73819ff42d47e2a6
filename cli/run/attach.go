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

// attachment joins this process's streams to the container of a foreground run that asks for them. The container
// does not wait for the attachment: its earlier output comes from its log. Later output comes from the terminal if
// there is one, and from the log otherwise.
type attachment struct {
	container string
	tty       bool
	ended     chan error // receives the session's end; nil if nothing was joined

	// Output from before asked comes only from the log, and output from after since from the terminal. Output
	// between them may come from both.
	asked, since time.Time
	logged       int64  // bytes of the log
	unshown      []byte // the first bytes of the log that were not printed

	mu     sync.Mutex // guards the following fields
	out    io.Writer  // the terminal
	live   int64      // bytes that only the terminal brought
	first  []byte     // the terminal's first bytes that the log has not repeated yet
	shown  int64      // bytes of the log that were printed
	either []byte     // the part of shown that the terminal may bring as well
}

// maxUnshown bounds each slice of an attachment. It is more than a container is expected to write while the streams
// are being joined.
const maxUnshown = 64 << 10

// wanted returns how to attach to a container, or nil to not attach.
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

// attach joins the streams. A failure is ignored, because the container may have ended already.
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
		at.ended <- session.Run(ctx, &streams, conn, session.Options{Stdin: in.Stdin, TTY: at.tty, Redraw: true})
	}()
}

// log prints a piece of the log unless the terminal shows it. While a terminal is attached, the output of other
// containers is not printed; bulkhead logs has it.
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

// repeats reports whether the terminal has already shown a piece of the log that may come both ways. The caller
// holds mu.
func (at *attachment) repeats(data []byte) bool {
	if len(data) > 0 && bytes.HasPrefix(at.first, data) {
		at.first = at.first[len(data):]
		return true
	}
	at.either = append(at.either, data[:min(len(data), maxUnshown-len(at.either))]...)
	return false
}

// Write writes output from the terminal, without a beginning that the log has already shown.
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

// overlap returns the length of the longest suffix of a that is a prefix of b.
func overlap(a, b []byte) int {
	for n := min(len(a), len(b)); n > 0; n-- {
		if bytes.HasPrefix(b, a[len(a)-n:]) {
			return n
		}
	}
	return 0
}

// awaitSession waits for the end of the session after the pod has ended. Then it prints the output that neither the
// terminal nor the log has shown, written while the streams were being joined.
func (r *runner) awaitSession(cancel context.CancelFunc) error {
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
	// The log completes an unfinished last line, the terminal does not.
	if missed := at.logged - at.shown - at.live; at.tty && missed > 1 {
		_, _ = r.app.Out.Write(at.unshown[:min(missed, int64(len(at.unshown)))]) // a failed write has no remedy
	}
	// The pod's end reports the exit code, and signals reach the pod separately.
	if errors.As(err, new(app.ExitError)) || errors.Is(err, stream.ErrDetached) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// leavePatience bounds the wait for the last output of a session after its pod has ended.
const leavePatience = 5 * time.Second
