package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/input"
)

// exitPatience bounds the wait for a container's exit after the end of its output. A container can close its output and
// live on.
const exitPatience = 10 * time.Second

// Attach copies a process's streams to and from a client, from now on. It returns the process's exit once the output
// and the process have ended, also if the process is deleted meanwhile.
// It fails if the client fails or falls behind, if ctx ends, or if a container lives on for ten seconds
// after the end of its output. It waits for an exec'd process without that limit, because the client wants its exit.
//
// A client that attaches to a Ready process misses no output. One goroutine per stream writes to the client. A write
// that blocks is unblocked by the client's owner, not by ctx.
//
// Any number of clients may be attached. If the process has a log, a client may lag by half a megabyte. It is detached
// if it then reads nothing for a second. A process with a containerv1.Stream waits for its first client until that
// client leaves.
func (t *processes) Attach(ctx context.Context, id Process, c Streams) (Exit, error) {
	p, patient, err := t.beginAttach(id, c)
	if err != nil {
		return Exit{}, fmt.Errorf("attach: %w", err)
	}
	if err := p.copyStreams(ctx, patient, c); err != nil {
		return Exit{}, fmt.Errorf("attached to %s: %w", p.subject(), err)
	}
	return p.awaitSilent(ctx)
}

// awaitSilent waits for the end of a process after the end of its output.
func (p *process) awaitSilent(ctx context.Context) (Exit, error) {
	if p.id.Exec == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.table.patience)
		defer cancel()
	}
	return p.awaitExit(ctx)
}

// copyStreams copies a process's output until its end, and its input until the process ends: it may still read.
func (p *process) copyStreams(ctx context.Context, patient bool, c Streams) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		err   error
		stdin bool
	}
	results := make(chan result, 3)
	waiting := 0
	for i, w := range []io.Writer{c.Stdout, c.Stderr} {
		h := p.out[i]
		if w == nil || h == nil {
			continue
		}
		waiting++
		member := h.Join(patient)
		go func() {
			defer h.Leave(member)
			results <- result{err: member.CopyTo(ctx, w)}
		}()
	}
	p.firstAttached()
	fed := make(chan struct{})
	if c.Stdin != nil {
		go func() {
			defer close(fed)
			err := p.copyInput(ctx, c.Stdin)
			closeReader(c.Stdin) // so that its writer does not wait for us
			results <- result{err, true}
		}()
	} else {
		close(fed)
	}
	outputs := waiting
	for err == nil && waiting > 0 {
		r := <-results
		switch {
		case !r.stdin:
			waiting--
			err = r.err
		case r.err != nil && !errors.Is(r.err, input.ErrNoInput):
			p.table.log.Debug("stdin ended", "process", p.subject(), "error", r.err)
		}
	}
	switch {
	case err != nil:
	case outputs > 0:
		_, err = p.awaitSilent(ctx)
	default:
		select {
		case <-p.done:
		case <-fed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	cancel(err)
	// The other output copies end with the context, or with their write.
	for ; waiting > 0; waiting-- {
		if r := <-results; r.stdin {
			waiting++
		}
	}
	if closeReader(c.Stdin) {
		<-fed
	}
	return err
}

// closeReader ends a Read under way, if it can.
func closeReader(r io.Reader) bool {
	closer, ok := r.(io.Closer)
	if ok {
		closer.Close()
	}
	return ok
}

// beginAttach finds the process, reserves its stdin, and reports whether its output waits for this client.
func (t *processes) beginAttach(id Process, c Streams) (*process, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(id)
	if err == nil && p.host != nil {
		err = fmt.Errorf("%s: %w: its standard streams are files of the host", p.subject(), errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, false, err
	}
	if c.Stdin != nil {
		if !p.hasStdin() {
			return nil, false, fmt.Errorf("%s: %w: it has no stdin", p.subject(), errdefs.ErrInvalidArgument)
		}
		if p.fed {
			return nil, false, fmt.Errorf("%s: stdin is attached already: %w", p.subject(), errdefs.ErrConflict)
		}
		p.fed = true
	}
	select {
	case <-p.attached:
		return p, false, nil
	default:
		return p, p.streams(), nil
	}
}

// firstAttached starts the output of a process without a log. A client of stdin alone does not count.
func (p *process) firstAttached() {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	for _, h := range p.out {
		if h == nil || h.Clients() == 0 {
			continue
		}
		select {
		case <-p.attached:
		default:
			close(p.attached)
		}
		return
	}
}

// copyInput copies a client's input to the process until either ends.
func (p *process) copyInput(ctx context.Context, r io.Reader) error {
	select {
	case <-p.started:
	case <-ctx.Done():
		p.releaseInput()
		return context.Cause(ctx)
	}
	if p.vm == nil { // it ended before this shim started
		p.releaseInput()
		return input.ErrNoInput
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.vm.Context(), func() { cancel(ErrVMGone) })()
	in := p.feeder()
	err := in.Pass(ctx, r)
	closing := p.releaseInput()
	// The context ends when the client leaves, but the process must still learn that its input has ended.
	end, done := p.vm.Call(context.WithoutCancel(ctx), p.table.callTimeout)
	defer done()
	err = endOf(err)
	if closing && !errors.Is(err, input.ErrNoInput) {
		err = errors.Join(err, in.CloseInput(end))
		in.Drain(end)
	}
	return errors.Join(err, in.Close())
}

func (p *process) feeder() *input.Feeder {
	m := p.vm
	return &input.Feeder{Process: p.id, Agent: m.Agent, Link: m.Link, Gone: m.VM.Done(), Ended: p.done}
}

func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// releaseInput releases the process's stdin and reports whether it must be closed.
func (p *process) releaseInput() bool {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.fed = false
	return p.id.Exec != "" || p.stdio.Input() == containerv1.StdinOnce || p.closeIn
}

// CloseInput closes a process's stdin once all input of an attached client has been fed.
func (t *processes) CloseInput(ctx context.Context, id Process) error {
	t.mu.Lock()
	p, err := t.find(id)
	if err == nil && !p.hasStdin() {
		err = fmt.Errorf("%s: %w: it has no stdin", subject(id), errdefs.ErrInvalidArgument)
	}
	fed := false
	if err == nil && p.host != nil {
		p.closeIn = true
		if p.host.files != nil {
			p.host.files.Drain()
		}
		t.mu.Unlock()
		return nil
	}
	if err == nil {
		p.closeIn, fed = true, p.fed
		err = expect(p.subject(), "close the stdin of", p.state, Running, Paused)
	}
	t.mu.Unlock()
	if err != nil || fed {
		return err
	}
	call, done := p.vm.Call(ctx, p.table.callTimeout)
	defer done()
	f := p.feeder()
	err = f.CloseInput(call)
	f.Drain(call)
	if errors.Is(err, input.ErrNoInput) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
