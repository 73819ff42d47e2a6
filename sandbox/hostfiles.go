package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/hostfiles"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/input"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
)

// HostFiles are the standard streams of a process with containerv1.Descriptors.
type HostFiles = hostfiles.Files

// hostStreams are the standard streams of a process with containerv1.Descriptors. The table's mutex guards the fields.
type hostStreams struct {
	targets  hostfiles.Targets // by logs.Stream
	files    *hostfiles.Open   // nil between two calls of AttachFiles
	attached bool              // this shim had files once
	leased   bool              // see Leases
	deleted  bool              // the process was deleted
	abandon  context.CancelCauseFunc
	killed   bool          // it was sent SIGKILL
	stuck    chan struct{} // closed when a killed process's reader has taken nothing for the time silence
}

func newHostStreams() *hostStreams {
	return &hostStreams{targets: hostfiles.Targets{output.NewTarget(), output.NewTarget()}, stuck: make(chan struct{})}
}

// unread returns a channel that is closed when a process's last output counts as lost, or nil.
func (p *process) unread() <-chan struct{} {
	if p.host == nil {
		return nil
	}
	return p.host.stuck
}

// passed returns how much output was passed on, and whether a file has not taken all output that it was given.
func (h *hostStreams) passed() (written int64, busy bool) {
	for _, t := range h.targets {
		written += t.Offset()
		busy = busy || t.Busy()
	}
	return written, busy
}

// noteKill notes that a process was sent SIGKILL. Its end then waits only for a reader that reads. The rest of the output is
// lost, as if the process had waited at a full pipe. The processes of a container end with its first one.
// noteKill reports whether the process still has files. The caller holds mu.
func (t *processes) noteKill(id Process) bool {
	for other, p := range t.all {
		if other != id && (id.Exec != "" || other.Container != id.Container) || p.host == nil || p.host.killed {
			continue
		}
		p.host.killed = true
		t.work.Go(p.awaitReader)
	}
	p := t.all[id]
	return p != nil && p.host != nil && p.host.files != nil
}

// awaitReader closes the channel unread of a killed process if its reader does not read.
func (p *process) awaitReader() {
	look := time.NewTicker(silence)
	defer look.Stop()
	last, _ := p.host.passed()
	for {
		select {
		case <-p.pumped:
			return
		case <-p.table.work.Context().Done():
			return
		case <-look.C:
		}
		written, busy := p.host.passed()
		if busy && written == last {
			close(p.host.stuck)
			return
		}
		last = written
	}
}

// owesOutput reports whether a stopped process of an earlier shim may have output that its files did not take.
func (p *process) owesOutput() bool { return p.host != nil && p.host.leased }

// AttachFiles passes a process's standard streams to and from files of the host, and takes the files over. It calls
// attached when it has begun. It returns the process's exit after all of its output was written. If the process has
// ended and a child of it still has its output open, AttachFiles does not wait longer than WaitProcess. But it waits
// for a reader that is slow, and after SIGKILL for one that reads.
//
// The output waits in the guest until the first call. If ctx ends, the output waits for the next call. If a file has no
// reader any more, the process gets SIGPIPE. The end of the stdin's file ends the process's stdin, except for a
// terminal.
//
// From then on the process is leased (Leases), until EndLease. The files of a process that has ended may be attached
// too: a caller that has missed the exit then gets it.
func (t *processes) AttachFiles(ctx context.Context, id Process, f HostFiles, attached func()) (Exit, error) {
	p, files, err := t.beginFiles(id, f)
	if err != nil {
		return Exit{}, fmt.Errorf("attach files: %w", err)
	}
	attached()
	feeding, stop := context.WithCancelCause(ctx)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if err := p.feedFile(feeding, files); err != nil {
			t.log.Debug("stdin ended", "process", p.subject(), "error", err)
		}
	}()
	exit, err := p.awaitWritten(ctx)
	stop(err)
	files.Disconnect()
	<-fed
	files.Close()
	p.endFiles(err == nil)
	if err != nil {
		return Exit{}, fmt.Errorf("files of %s: %w", p.subject(), err)
	}
	return exit, nil
}

// beginFiles opens the files and connects the output to them.
func (t *processes) beginFiles(id Process, f HostFiles) (*process, *hostfiles.Open, error) {
	defer f.Close()
	record, err := progress.Open(f.Progress)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p, files, err := t.useFiles(id, f, record)
	if err != nil {
		record.Close()
		return nil, nil, err
	}
	if p.closeIn {
		files.Drain()
	}
	if !p.host.attached {
		close(p.attached)
	}
	p.host.attached, p.host.files = true, files
	if !p.host.leased && p.state != Stopped {
		p.host.leased = true
		t.storeOrLog(p.id.Container)
	}
	return p, files, nil
}

// useFiles connects the process to the files; the caller holds mu.
func (t *processes) useFiles(id Process, f HostFiles, record *progress.Record) (*process, *hostfiles.Open, error) {
	p, err := t.find(id)
	switch {
	case err != nil:
		return nil, nil, err
	case p.host == nil:
		return nil, nil, fmt.Errorf("%s: %w: its standard streams must be files of the host", p.subject(), errdefs.ErrInvalidArgument)
	case f.Terminal != nil && !p.terminal:
		return nil, nil, fmt.Errorf("%s: %w: a terminal for a process without one", p.subject(), errdefs.ErrInvalidArgument)
	case p.host.files != nil:
		return nil, nil, fmt.Errorf("%s: %w", p.subject(), ErrAttached)
	}
	files, err := hostfiles.Use(f, record, p.host.targets, p.hasStdin())
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.subject(), err)
	}
	return p, files, nil
}

// endFiles is the inverse of beginFiles for the process. With reported, the caller has the process's exit.
func (p *process) endFiles(reported bool) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.host.files = nil
	if reported && p.host.leased {
		p.host.leased = false
		p.table.storeOrLog(p.id.Container)
	}
	p.abandonOutput()
}

// forgetFiles is called when a process is deleted; the caller holds mu.
func (p *process) forgetFiles() {
	if p.host != nil {
		p.host.deleted = true
		p.abandonOutput()
	}
}

// abandonOutput gives up the output of a deleted process that no files can get any more; the caller holds mu.
func (p *process) abandonOutput() {
	if p.host.deleted && p.host.files == nil && p.host.abandon != nil {
		p.host.abandon(errdefs.ErrNotFound)
	}
}

// silence is the time after which the output of a process that has ended counts as complete, if nothing was written and
// no reader is slow.
const silence = 2 * time.Second

// awaitWritten waits for a process's end and then for its last output.
func (p *process) awaitWritten(ctx context.Context) (Exit, error) {
	exit, err := p.awaitExit(ctx)
	if err != nil {
		return exit, err
	}
	look := time.NewTicker(silence)
	defer look.Stop()
	for last := int64(-1); ; {
		select {
		case <-p.pumped:
			return exit, nil
		case <-p.unread():
			return exit, nil
		case <-look.C:
		case <-ctx.Done():
			return Exit{}, context.Cause(ctx)
		case <-p.table.work.Context().Done():
			return Exit{}, errClosed
		}
		written, busy := p.host.passed()
		if !busy && written == last {
			return exit, nil // a child of it has its output open
		}
		last = written
	}
}

// feedFile feeds a process's stdin from its file. It continues after the last byte that the guest has.
func (p *process) feedFile(ctx context.Context, files *hostfiles.Open) error {
	if !p.hasStdin() {
		return nil
	}
	select {
	case <-p.started:
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.table.mu.Lock()
	m := p.vm
	p.table.mu.Unlock()
	if m == nil { // it ended before this shim started
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.Context(), func() { cancel(ErrVMGone) })()
	before := files.Input()
	last, err := before.Last()
	if err != nil {
		return err
	}
	in := p.feeder()
	in.Sent, in.Unacked, in.Bound = before.Offset(), last, hostfiles.InputBound
	if err = in.Open(ctx); err == nil && in.Sent != before.Offset() {
		err = before.Reset(in.Sent) // another surrogate has fed the process before
	}
	if err == nil {
		err = in.Pass(ctx, files.Stdin())
	}
	if errors.Is(err, io.EOF) && !p.terminal {
		if err = in.CloseInput(ctx); err == nil {
			in.Drain(ctx)
		}
	}
	if errors.Is(err, input.ErrNoInput) {
		err = nil
	}
	return errors.Join(err, in.Close())
}

// Leases returns the processes that must not outlive the process of the host that has attached its files, and that have
// not ended.
func (t *processes) Leases() (ids []Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.all {
		if p.host != nil && p.host.leased && p.state != Stopped {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b Process) int {
		return slices.Compare([]string{a.Container, a.Exec}, []string{b.Container, b.Exec})
	})
	return ids
}

// EndLease lets a process live on without its process of the host.
func (t *processes) EndLease(id Process) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(id)
	if err != nil || p.host == nil {
		return err
	}
	p.host.leased = false
	return t.storeContainer(id.Container)
}
