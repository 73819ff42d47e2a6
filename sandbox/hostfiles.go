package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/input"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/rawfile"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// HostFiles are the standard streams of a process with containerv1.Descriptors: open files of any kind that a process
// of the host has too. No flag of them changes.
type HostFiles struct {
	// Terminal replaces the three others for a process with a terminal.
	Terminal *os.File
	// Stdin, Stdout and Stderr may be nil: the stdin is empty then, and the output is discarded.
	Stdin, Stdout, Stderr *os.File
	// Progress is the same for each shim.
	Progress *progress.Set
}

func (f HostFiles) close() {
	for _, file := range []*os.File{f.Terminal, f.Stdin, f.Stdout, f.Stderr} {
		if file != nil {
			closeQuietly(file)
		}
	}
}

// hostStreams are the standard streams of a process with containerv1.Descriptors. The sandbox's mutex guards the fields.
type hostStreams struct {
	targets  [2]*output.Target // by logs.Stream
	files    *openFiles        // nil between two calls of AttachFiles
	attached bool              // this shim had files once
	leased   bool              // see Leases
	deleted  bool              // the process was deleted
	abandon  context.CancelCauseFunc
}

// openFiles are the files of one call of AttachFiles.
type openFiles struct {
	record *progress.Record
	in     *rawfile.File // nil without a stdin
	out    [2]*rawfile.File
}

func newHostStreams() *hostStreams {
	return &hostStreams{targets: [2]*output.Target{output.NewTarget(), output.NewTarget()}}
}

// drain ends the stdin when no bytes are waiting in its file. A fifo may have a writer that never closes it.
func (h *hostStreams) drain() {
	if h.files != nil && h.files.in != nil {
		h.files.in.Drain()
	}
}

// owesOutput reports whether a stopped process of an earlier shim may have output that its files did not take.
func (p *process) owesOutput() bool { return p.host != nil && p.host.leased }

// AttachFiles passes a process's standard streams to and from files of the host, and takes the files over. It calls
// attached when it has begun. It returns the process's exit after all of its output was written. If the process has
// ended and a child of it still has its output open, AttachFiles does not wait longer than WaitProcess. But it waits
// for a reader that is slow.
//
// The output waits in the guest until the first call. If ctx ends, the output waits for the next call. If a file has no
// reader any more, the process gets SIGPIPE. The end of the stdin's file ends the process's stdin, except for a
// terminal.
//
// From then on the process is leased (Leases), until EndLease. The files of a process that has ended may be attached
// too: a caller that has missed the exit then gets it.
func (s *Sandbox) AttachFiles(ctx context.Context, id Process, f HostFiles, attached func()) (Exit, error) {
	p, files, err := s.beginFiles(id, f)
	if err != nil {
		return Exit{}, fmt.Errorf("attach files: %w", err)
	}
	attached()
	feeding, stop := context.WithCancelCause(ctx)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if err := s.feedFile(feeding, p, files); err != nil {
			s.log.Debug("stdin ended", "process", p.subject(), "error", err)
		}
	}()
	exit, err := s.awaitWritten(ctx, p)
	stop(err)
	p.disconnect(files)
	<-fed
	files.record.Close()
	s.endFiles(p, err == nil)
	if err != nil {
		return Exit{}, fmt.Errorf("files of %s: %w", p.subject(), err)
	}
	return exit, nil
}

// beginFiles opens the files and connects the output to them.
func (s *Sandbox) beginFiles(id Process, f HostFiles) (*process, *openFiles, error) {
	defer f.close()
	record, err := progress.Open(f.Progress)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, files, err := s.openFiles(id, f, record)
	if err != nil {
		record.Close()
		return nil, nil, err
	}
	if p.closeIn && files.in != nil {
		files.in.Drain()
	}
	if !p.host.attached {
		close(p.attached)
	}
	p.host.attached, p.host.files = true, files
	if !p.host.leased && p.state != Stopped {
		p.host.leased = true
		s.storeContainerOrLog(p.id.Container)
	}
	return p, files, nil
}

// openFiles opens the files for use; the caller holds mu.
func (s *Sandbox) openFiles(id Process, f HostFiles, record *progress.Record) (*process, *openFiles, error) {
	p, err := s.find(id)
	switch {
	case err != nil:
		return nil, nil, err
	case p.host == nil:
		return nil, nil, fmt.Errorf("%s: %w: its standard streams must be files of the host", p.subject(), ErrInvalid)
	case p.terminal != (f.Terminal != nil):
		return nil, nil, fmt.Errorf("%s: %w: a process with a terminal needs one, and others need none", p.subject(), ErrInvalid)
	case p.host.files != nil:
		return nil, nil, fmt.Errorf("%s: %w", p.subject(), ErrAttached)
	}
	files := &openFiles{record: record}
	if err = files.open(f, p.hasStdin()); err == nil {
		err = p.connect(files)
	}
	if err != nil {
		files.close()
		return nil, nil, fmt.Errorf("%s: %w", p.subject(), err)
	}
	return p, files, nil
}

// open opens the files for use.
func (o *openFiles) open(f HostFiles, stdin bool) (err error) {
	in, outs := f.Stdin, [2]*os.File{f.Stdout, f.Stderr}
	if f.Terminal != nil {
		in, outs = f.Terminal, [2]*os.File{f.Terminal}
	}
	if in != nil && stdin {
		if o.in, err = rawfile.New(in, rawfile.ForRead); err != nil {
			return err
		}
	}
	for i, out := range outs {
		if out == nil {
			continue
		}
		if o.out[i], err = rawfile.New(out, rawfile.ForWrite); err != nil {
			return err
		}
	}
	return nil
}

// close closes the files but the record, which the feeder of stdin may still use.
func (o *openFiles) close() {
	for _, file := range []*rawfile.File{o.in, o.out[logs.Stdout], o.out[logs.Stderr]} {
		if file != nil {
			file.Close()
		}
	}
}

// connect connects the output to the files.
func (p *process) connect(files *openFiles) error {
	for i, stream := range []progress.Stream{logs.Stdout: progress.Stdout, logs.Stderr: progress.Stderr} {
		if err := p.host.targets[i].Connect(files.out[i], files.record.Output(stream)); err != nil {
			p.disconnect(files)
			return err
		}
	}
	return nil
}

// lastWrite bounds the wait for the last write to a file, to note how much it wrote. A write may hang.
const lastWrite = time.Second

// disconnect is the inverse of connect. It closes the files but the record.
func (p *process) disconnect(files *openFiles) {
	var done []<-chan struct{}
	for _, target := range p.host.targets {
		done = append(done, target.Disconnect())
	}
	files.close()
	late := time.NewTimer(lastWrite)
	defer late.Stop()
	for _, ended := range done {
		select {
		case <-ended:
		case <-late.C:
			return
		}
	}
}

// endFiles is the inverse of beginFiles for the process. With reported, the caller has the process's exit.
func (s *Sandbox) endFiles(p *process, reported bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.host.files = nil
	if reported && p.host.leased {
		p.host.leased = false
		s.storeContainerOrLog(p.id.Container)
	}
	s.abandonOutput(p)
}

// forgetFiles is called when a process is deleted; the caller holds mu.
func (s *Sandbox) forgetFiles(p *process) {
	if p.host != nil {
		p.host.deleted = true
		s.abandonOutput(p)
	}
}

// abandonOutput gives up the output of a deleted process that no files can get any more; the caller holds mu.
func (s *Sandbox) abandonOutput(p *process) {
	if p.host.deleted && p.host.files == nil && p.host.abandon != nil {
		p.host.abandon(ErrNotFound)
	}
}

// silence is the time after which the output of a process that has ended counts as complete, if nothing was written and
// no reader is slow.
const silence = 2 * time.Second

// awaitWritten waits for a process's end and then for its last output.
func (s *Sandbox) awaitWritten(ctx context.Context, p *process) (Exit, error) {
	exit, err := s.awaitExit(ctx, p)
	if err != nil {
		return exit, err
	}
	look := time.NewTicker(silence)
	defer look.Stop()
	for last := int64(-1); ; {
		select {
		case <-p.pumped:
			return exit, nil
		case <-look.C:
		case <-ctx.Done():
			return Exit{}, context.Cause(ctx)
		case <-s.ctx.Done():
			return Exit{}, errClosed
		}
		var written int64
		busy := false
		for _, t := range p.host.targets {
			written += t.Offset()
			busy = busy || t.Busy()
		}
		if !busy && written == last {
			return exit, nil // a child of it has its output open
		}
		last = written
	}
}

// inputBound bounds the bytes that the guest has not acknowledged. The progress must also keep a part that the feeder
// is sending, one that it has not sent yet, and the next one.
const inputBound = progress.Ring - 3*progress.StageSize

// recorded is a stdin's file. Each of its bytes is kept before the guest gets it.
type recorded struct {
	file     *rawfile.File
	progress *progress.Input
}

func (r recorded) Read(p []byte) (int, error) {
	return r.file.Do(func(fd int) (int, error) {
		return r.progress.Fill(fd, p, func(p []byte) (int, error) {
			n, err := unix.Read(fd, p)
			if n == 0 && err == nil {
				err = io.EOF
			}
			return max(n, 0), err
		})
	})
}

// feedFile feeds a process's stdin from its file. It continues after the last byte that the guest has.
func (s *Sandbox) feedFile(ctx context.Context, p *process, files *openFiles) error {
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
	s.mu.Lock()
	m := p.vm
	s.mu.Unlock()
	if m == nil { // it ended before this shim started
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(ErrVMGone) })()
	before := files.record.Input()
	last, err := before.Last()
	if err != nil {
		return err
	}
	in := newFeeder(p)
	in.Sent, in.Unacked, in.Bound = before.Offset(), last, inputBound
	if err = in.Open(ctx); err == nil && in.Sent != before.Offset() {
		err = before.Reset(in.Sent) // another surrogate has fed the process before
	}
	var from io.Reader = io.LimitReader(nil, 0)
	if files.in != nil {
		from = recorded{files.in, before}
	}
	if err == nil {
		err = in.Pass(ctx, from)
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
func (s *Sandbox) Leases() (ids []Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.procs {
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
func (s *Sandbox) EndLease(id Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.find(id)
	if err != nil || p.host == nil {
		return err
	}
	p.host.leased = false
	return s.storeContainer(id.Container)
}
