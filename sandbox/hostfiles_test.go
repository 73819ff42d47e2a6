package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
)

// surrogate is a process of the host with blocking pipes: the test has the other ends.
type surrogate struct {
	h       *harness
	id      Process
	files   HostFiles
	in      *os.File // feeds the stdin
	out     *os.File
	errs    *os.File
	ctx     context.Context
	leave   context.CancelFunc
	results chan fileResult
}

type fileResult struct {
	exit Exit
	err  error
}

// blockingPipe returns a pipe with a blocking end for the process.
func (h *harness) blockingPipe() (r, w *os.File) {
	h.t.Helper()
	r, w, err := os.Pipe()
	h.must(err)
	h.t.Cleanup(func() { r.Close(); w.Close() })
	r.Fd()
	w.Fd()
	return r, w
}

func (h *harness) surrogate(id Process) *surrogate {
	h.t.Helper()
	s := &surrogate{h: h, id: id}
	s.files.Stdin, s.in = h.blockingPipe()
	s.out, s.files.Stdout = h.blockingPipe()
	s.errs, s.files.Stderr = h.blockingPipe()
	var err error
	s.files.Progress, err = progress.Create()
	h.must(err)
	h.t.Cleanup(s.files.Progress.Close)
	return s
}

// again returns descriptors of the same files for another shim.
func (s *surrogate) again() (f HostFiles) {
	s.h.t.Helper()
	for from, to := range map[*os.File]**os.File{
		s.files.Terminal: &f.Terminal, s.files.Stdin: &f.Stdin, s.files.Stdout: &f.Stdout, s.files.Stderr: &f.Stderr,
	} {
		if from != nil {
			raw, err := from.SyscallConn()
			s.h.must(err)
			s.h.must(raw.Control(func(fd uintptr) { // Fd would change a flag of the file
				again, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
				s.h.must(err)
				*to = os.NewFile(uintptr(again), from.Name())
			}))
		}
	}
	var err error
	f.Progress, err = s.files.Progress.Duplicate()
	s.h.must(err)
	return f
}

// connect attaches the files to the process.
func (s *surrogate) connect() {
	s.h.t.Helper()
	s.ctx, s.leave = context.WithCancel(s.h.ctx)
	s.h.t.Cleanup(s.leave)
	attached := make(chan struct{})
	s.results = make(chan fileResult, 1)
	files := s.again()
	go func() {
		exit, err := s.h.box.AttachFiles(s.ctx, s.id, files, func() { close(attached) })
		s.results <- fileResult{exit, err}
	}()
	select {
	case <-attached:
	case r := <-s.results:
		if r.err != nil {
			s.h.t.Fatalf("attach files: %v", r.err)
		}
		s.results <- r // it had ended before
	}
}

// end disconnects the surrogate.
func (s *surrogate) end() {
	s.leave()
	<-s.results
}

// close closes the surrogate's own files, as its end does.
func (s *surrogate) close() {
	s.files.Close()
	s.files.Progress.Close()
}

func (s *surrogate) exit() Exit {
	s.h.t.Helper()
	r := <-s.results
	s.h.must(r.err)
	return r.exit
}

// read reads n bytes of the output.
func (s *surrogate) read(from *os.File, n int) string {
	s.h.t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(from, b)
	s.h.must(err)
	return string(b)
}

// hosted creates and starts a container with descriptors.
func (h *harness) hosted(id string) *fakeProc {
	h.t.Helper()
	h.createHosted(id, false)
	_, err := h.box.StartProcess(h.ctx, Process{Container: id})
	h.must(err)
	return h.fake(Process{Container: id})
}

func (h *harness) createHosted(id string, terminal bool) {
	h.t.Helper()
	c := h.container(id)
	c.Log.Close()
	c.Log, c.Terminal, c.Stdio = nil, terminal, containerv1.Descriptors{Stdin: true}
	h.must(h.box.CreateContainer(h.ctx, c))
}

func TestHostFiles(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	exec := Process{Container: "c", Exec: "e"}
	h.must(h.box.CreateExec(h.ctx, ExecConfig{Process: exec, Spec: []byte(`{}`), Stdio: containerv1.Descriptors{Stdin: true}}))
	h.createHosted("d", false)
	for _, id := range []Process{exec, {Container: "d"}} {
		s := h.surrogate(id)
		s.connect() // before the start
		_, err := h.box.StartProcess(h.ctx, id)
		h.must(err)
		p := h.fake(id)
		if id.Exec != "" && !p.keep {
			t.Error("the stdin of an exec ends with the shim")
		}
		_, err = s.in.WriteString("question")
		h.must(err)
		h.must(p.until(h.ctx, func() bool { return string(p.input) == "question" }))
		s.in.Close()
		s.files.Stdin.Close()
		h.must(p.until(h.ctx, func() bool { return p.inEOF }))
		h.write(p, "stdout", "answer")
		h.write(p, "stderr", "trouble")
		if got := s.read(s.out, 6) + s.read(s.errs, 7); got != "answertrouble" {
			t.Errorf("%v: output %q", id, got)
		}
		h.must(p.until(h.ctx, func() bool { return p.out["stdout"].acked == 6 && p.out["stderr"].acked == 7 }))
		p.finish(exited(3))
		if exit := s.exit(); exit.Code != 3 || exit.Reason != ReasonError {
			t.Errorf("%v: exit %+v", id, exit)
		}
		s.close()
		if rest, err := io.ReadAll(s.out); len(rest) > 0 || err != nil {
			t.Errorf("%v: after the exit: %q, %v", id, rest, err)
		}
		if _, err := h.box.DeleteProcess(h.ctx, id); err != nil {
			t.Error(err)
		}
	}
}

// TestHostFilesWait: output waits in the guest for the files, also when they leave, and is passed on once.
func TestHostFilesWait(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.hosted("c")
	h.write(p, "stdout", "early ")
	for _, same := range []bool{true, false} {
		s := h.surrogate(Process{Container: "c"})
		s.connect()
		if got := s.read(s.out, 6); got != "early " {
			t.Errorf("output %q", got)
		}
		_, err := s.in.WriteString("in ")
		h.must(err)
		h.must(p.until(h.ctx, func() bool { return len(p.input)%9 == map[bool]int{true: 3, false: 0}[same] && len(p.input) > 0 }))
		if same { // the same surrogate comes back
			s.end()
			h.write(p, "stdout", "later ")
			s.connect()
			if got := s.read(s.out, 6); got != "later " {
				t.Errorf("output %q", got)
			}
			_, err := s.in.WriteString("in ")
			h.must(err)
			h.must(p.until(h.ctx, func() bool { return len(p.input) == 6 }))
		}
		s.end()
		h.write(p, "stdout", "early ")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if string(p.input) != "in in in " || p.inEOF {
		t.Errorf("the process read %q, ended %v", p.input, p.inEOF)
	}
}

// TestSlowHostFile: a reader that is slow, or does not read at all, holds up only its own process. The exit waits for
// it, and neither the sandbox's nor the surrogate's end does.
func TestSlowHostFile(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.hosted("c")
	s := h.surrogate(Process{Container: "c"})
	s.connect()
	const total = 1 << 20
	wrote := make(chan error, 1)
	go func() {
		wrote <- p.write(h.ctx, "stdout", bytes.Repeat([]byte("0123456789abcdef"), total/16))
		p.finish(exited(0))
	}()
	select {
	case err := <-wrote:
		t.Fatalf("the process wrote more than the pipe holds: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	other := h.started("other")
	h.write(other, "stdout", "line\n")
	other.finish(exited(0))
	h.wait(Process{Container: "other"})
	h.must(h.box.SignalProcess(h.ctx, s.id, unix.SIGUSR1, false))

	got := make(chan string, 1)
	go func() {
		head := s.read(s.out, total-100)
		h.wait(s.id)
		time.Sleep(silence + silence/2) // longer than the silence that ends other outputs
		got <- head + s.read(s.out, 100)
	}()
	h.must(<-wrote)
	if exit := s.exit(); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	if text := <-got; text != strings.Repeat("0123456789abcdef", total/16) {
		t.Errorf("read %d bytes, not the ones that were written", len(text))
	}

	p = h.hosted("stuck")
	s = h.surrogate(Process{Container: "stuck"})
	s.connect()
	go func() { _ = p.write(h.ctx, "stdout", make([]byte, total)) }()
	h.must(p.until(h.ctx, func() bool { return p.out["stdout"].base > 0 }))
	s.end()
	s.connect()
	h.box.Close()
	if r := <-s.results; !errors.Is(r.err, errClosed) && !errors.Is(r.err, ErrVMGone) {
		t.Errorf("at the shim's end: %v", r.err)
	}
}

// TestKillWithoutReader: the end of a killed process does not wait for a reader that does not read, in whichever order
// kill and end come. It waits for one that reads.
func TestKillWithoutReader(t *testing.T) {
	t.Parallel()
	const total = 64<<10 + outputBound // a pipe's size and the guest's buffer
	for name, row := range map[string]struct{ exec, first, reads bool }{
		"runs": {}, "has ended": {first: true}, "an exec of the container": {exec: true}, "its reader reads": {reads: true, first: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := running(t)
			c := Process{Container: "c"}
			p, s := h.hosted("c"), h.surrogate(c)
			if row.exec {
				exec := Process{Container: "c", Exec: "e"}
				h.must(h.box.CreateExec(h.ctx, ExecConfig{Process: exec, Spec: []byte(`{}`), Stdio: containerv1.Descriptors{Stdin: true}}))
				_, err := h.box.StartProcess(h.ctx, exec)
				h.must(err)
				p, s = h.fake(exec), h.surrogate(exec)
			}
			s.connect()
			h.must(p.write(h.ctx, "stdout", make([]byte, total)))
			if row.first {
				p.finish(exited(0))
			}
			h.must(h.box.SignalProcess(h.ctx, c, unix.SIGKILL, false))
			if row.exec {
				p.finish(exited(0)) // as the guest's kernel ends it
			}
			read := make(chan int, 1)
			go func() {
				n := 0
				for row.reads && n < total {
					m, err := s.out.Read(make([]byte, total/16))
					if err != nil {
						break
					}
					n += m
					time.Sleep(silence / 16)
				}
				read <- n
			}()
			s.exit()
			if n := <-read; row.reads && n != total {
				t.Errorf("read %d bytes of %d", n, total)
			}
			if row.first {
				if err := h.box.SignalProcess(h.ctx, c, unix.SIGKILL, false); !errors.Is(err, errdefs.ErrNotFound) {
					t.Errorf("a second SIGKILL: %v", err)
				}
			}
		})
	}
}

// TestHostFileWithoutReader: the guest closes an output that no process reads any more.
func TestHostFileWithoutReader(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"an agent": false, "an agent of an earlier version": true} {
		h := running(t)
		if old {
			h.agent.refuse(agentv1.OpNoReader, errdefs.ErrNotImplemented)
		}
		p := h.hosted("c")
		s := h.surrogate(Process{Container: "c"})
		s.out.Close()
		s.connect()
		wrote := make(chan error, 1)
		go func() { wrote <- p.write(h.ctx, "stdout", make([]byte, 4*outputBound)) }()
		if err := <-wrote; errors.Is(err, unix.EPIPE) == old || err != nil && old {
			t.Errorf("%s: the process's write: %v", name, err)
		}
		h.write(p, "stderr", "still")
		if got := s.read(s.errs, 5); got != "still" {
			t.Errorf("%s: stderr %q", name, got)
		}
		p.finish(agentv1.Exit{Code: 141, Signal: 13, At: time.Now()})
		if exit := s.exit(); exit.Code != 141 || exit.Signal != 13 {
			t.Errorf("%s: exit %+v", name, exit)
		}
	}
}

// TestHostFilesRestored: the next shim loses and repeats no output and no input.
func TestHostFilesRestored(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.hosted("c")
	s := h.surrogate(Process{Container: "c"})
	s.connect()
	var want, fed strings.Builder
	read := make(chan string, 1)
	go func() {
		all, err := io.ReadAll(s.out)
		if err != nil {
			t.Error(err)
		}
		read <- string(all)
	}()
	for shim := range 6 {
		p.update(func() { p.noAcks = shim%2 == 0 }) // the bytes must come again
		for i := range 40 {
			line := fmt.Sprintf("%d/%d %s\n", shim, i, strings.Repeat("x", i*20))
			want.WriteString(line)
			fed.WriteString(line)
			h.write(p, "stdout", line)
			_, err := s.in.WriteString(line)
			h.must(err)
		}
		h.must(p.until(h.ctx, func() bool { return len(p.input) == fed.Len() || shim%2 == 0 && len(p.input) > fed.Len()/2 }))
		h.crash()
		<-s.results
		h.write(p, "stdout", "between\n")
		want.WriteString("between\n")
		h.must(h.restore(RestoreFiles{}))
		if diff := cmp.Diff([]Process{s.id}, h.box.Leases()); diff != "" {
			t.Errorf("leases (-want +got):\n%s", diff)
		}
		p.update(func() { p.noAcks = false })
		s.connect()
	}
	s.in.Close()
	s.files.Stdin.Close()
	h.must(p.until(h.ctx, func() bool { return p.inEOF }))
	p.finish(exited(5))
	if exit := s.exit(); exit.Code != 5 {
		t.Errorf("exit %+v", exit)
	}
	s.close()
	if got := <-read; got != want.String() {
		t.Errorf("output (-want +got):\n%s", cmp.Diff(want.String(), got))
	}
	if string(p.input) != fed.String() {
		t.Errorf("input (-want +got):\n%s", cmp.Diff(fed.String(), string(p.input)))
	}
}

// TestExitMissed: a surrogate that missed the exit gets it from the next shim, with the output that is left.
func TestExitMissed(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.hosted("c")
	s := h.surrogate(Process{Container: "c"})
	s.connect()
	h.write(p, "stdout", "read ")
	s.read(s.out, 5)
	h.must(p.until(h.ctx, func() bool { return p.out["stdout"].acked == 5 }))
	s.end()
	h.write(p, "stdout", "late")
	p.finish(exited(4))
	h.wait(s.id)
	h.crash()
	h.must(h.restore(RestoreFiles{}))
	for range 2 {
		s.connect()
		if exit := s.exit(); exit.Code != 4 {
			t.Errorf("exit %+v", exit)
		}
	}
	s.close()
	if got, err := io.ReadAll(s.out); string(got) != "late" || err != nil {
		t.Errorf("output %q, %v", got, err)
	}
	if ids := h.box.Leases(); len(ids) > 0 {
		t.Errorf("leases %v", ids)
	}
}

// TestHostFilesOfALostVM: the exit says that the VM is gone.
func TestHostFilesOfALostVM(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.hosted("c")
	s := h.surrogate(Process{Container: "c"})
	s.connect()
	h.write(p, "stdout", "last")
	s.read(s.out, 4)
	h.must(h.vm().Kill(h.ctx))
	if exit := s.exit(); exit.Code != 137 || exit.Signal != 9 || exit.Reason != ReasonVMKilled || exit.Message == "" {
		t.Errorf("exit %+v", exit)
	}
	s.connect()
	if exit := s.exit(); exit.Code != 137 {
		t.Errorf("exit again %+v", exit)
	}
	h.crash()
	h.vm().refuse("Adopt", errors.New("gone"))
	h.must(h.restore(RestoreFiles{}))
	s.connect()
	if exit := s.exit(); exit.Code != 137 || exit.Reason != ReasonVMKilled {
		t.Errorf("exit from the next shim %+v", exit)
	}
}

// TestHostTerminal passes bytes between two terminals.
func TestHostTerminal(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.createHosted("c", true)
	id := Process{Container: "c"}
	s := h.surrogate(id)
	master, slave := testpty.Open(t)
	testpty.Raw(t, slave)
	s.files = HostFiles{Terminal: slave, Progress: s.files.Progress}
	s.connect()
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	_, err = master.WriteString("ls\r\x04")
	h.must(err)
	h.must(p.until(h.ctx, func() bool { return string(p.input) == "ls\r\x04" }))
	h.write(p, "stdout", "a\r\nb\r\n")
	if got := s.read(master, 6); got != "a\r\nb\r\n" {
		t.Errorf("output %q", got)
	}
	h.must(h.box.ResizeProcess(h.ctx, id, 91, 33))
	h.must(p.until(h.ctx, func() bool { return p.size == [2]uint16{91, 33} }))
	p.finish(exited(0))
	s.exit()
	if p.inEOF {
		t.Error("the terminal's input was ended")
	}
}

// TestDirections: a process with a terminal may have two files, for its input and its output. The end of the input does not
// end the terminal's.
func TestDirections(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.createHosted("c", true)
	id := Process{Container: "c"}
	s := h.surrogate(id)
	in, typed, err := os.Pipe()
	h.must(err)
	shown, out, err := os.Pipe()
	h.must(err)
	defer in.Close()
	defer shown.Close()
	s.files = HostFiles{Stdin: in, Stdout: out, Progress: s.files.Progress}
	s.connect()
	_, err = h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	_, err = typed.WriteString("ls\r")
	h.must(err)
	h.must(typed.Close())
	h.must(p.until(h.ctx, func() bool { return string(p.input) == "ls\r" }))
	h.write(p, "stdout", "a\r\n")
	if got := s.read(shown, 3); got != "a\r\n" {
		t.Errorf("output %q", got)
	}
	h.must(h.box.ResizeProcess(h.ctx, id, 91, 33))
	h.must(p.until(h.ctx, func() bool { return p.size == [2]uint16{91, 33} }))
	p.finish(exited(0))
	s.exit()
	out.Close()
	if p.inEOF {
		t.Error("the terminal's input was ended")
	}
}

// TestSizeBeforeStart: an exec'd process gets the last size that its terminal had before its start.
func TestSizeBeforeStart(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	id := Process{Container: "c", Exec: "e"}
	h.must(h.box.CreateExec(h.ctx, ExecConfig{Process: id, Spec: []byte(`{}`), Terminal: true, Stdio: containerv1.Descriptors{}}))
	h.must(h.box.ResizeProcess(h.ctx, id, 80, 24))
	h.must(h.box.ResizeProcess(h.ctx, id, 91, 33))
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	if p := h.fake(id); p.size != [2]uint16{91, 33} {
		t.Errorf("size %v", p.size)
	}
}

// TestCloseHostInput: the stdin ends although the fifo has a writer, but not before all bytes were read.
func TestCloseHostInput(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		h := running(t)
		p := h.hosted("c")
		s := h.surrogate(Process{Container: "c"})
		text := strings.Repeat("x", 60000) // fits into a pipe
		_, err := s.in.WriteString(text)
		h.must(err)
		if early {
			h.must(h.box.CloseInput(h.ctx, s.id))
		}
		s.connect()
		if !early {
			h.must(h.box.CloseInput(h.ctx, s.id))
		}
		h.must(p.until(h.ctx, func() bool { return p.inEOF }))
		if string(p.input) != text {
			t.Errorf("the process read %d bytes of %d", len(p.input), len(text))
		}
	}
}

// TestFilesAreOptional: without a stdin the process reads the end at once, and other output is discarded.
func TestFilesAreOptional(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.hosted("c")
	s := h.surrogate(Process{Container: "c"})
	plain, err := os.Create(filepath.Join(t.TempDir(), "out"))
	h.must(err)
	s.files = HostFiles{Stderr: plain, Progress: s.files.Progress}
	s.connect()
	h.must(p.until(h.ctx, func() bool { return p.inEOF }))
	h.write(p, "stdout", strings.Repeat("x", 4*outputBound))
	h.write(p, "stderr", strings.Repeat("y", 4*outputBound))
	p.finish(exited(0))
	s.exit()
	if got, err := os.ReadFile(plain.Name()); len(got) != 4*outputBound || err != nil {
		t.Errorf("the file has %d bytes, %v", len(got), err)
	}
}

func TestAttachFilesRefuses(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.hosted("c")
	h.started("log")
	h.createHosted("tty", true)
	s := h.surrogate(Process{Container: "c"})
	s.connect()
	for name, tc := range map[string]struct {
		id   string
		edit func(f *HostFiles)
		want error
	}{
		"an unknown process":   {"none", func(*HostFiles) {}, errdefs.ErrNotFound},
		"a process with a log": {"log", func(*HostFiles) {}, errdefs.ErrInvalidArgument},
		"a second surrogate":   {"c", func(*HostFiles) {}, ErrAttached},
		"a terminal":           {"c", func(f *HostFiles) { f.Terminal, f.Stdin = f.Stdin, nil }, errdefs.ErrInvalidArgument},
		"no progress": {"tty", func(f *HostFiles) { f.Progress.Close(); f.Progress, f.Terminal = nil, f.Stdout },
			errdefs.ErrInvalidArgument},
		"other progress": {"tty", func(f *HostFiles) { f.Progress[0], f.Terminal = f.Progress[1], f.Stderr }, errdefs.ErrInvalidArgument},
	} {
		f := s.again()
		tc.edit(&f)
		_, err := h.box.AttachFiles(h.ctx, Process{Container: tc.id}, f, func() { t.Errorf("%s: attached", name) })
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
		list := []*os.File{f.Terminal, f.Stdin, f.Stdout, f.Stderr}
		if f.Progress != nil {
			list = append(list, f.Progress[:]...)
		}
		for _, file := range list {
			if file != nil && !errors.Is(file.Close(), os.ErrClosed) {
				t.Errorf("%s: a file is left open", name)
			}
		}
	}
	if _, err := h.box.Attach(h.ctx, s.id, Streams{Stdout: io.Discard}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("Attach: got %v", err)
	}
}

// TestLeases: a process is leased from its first files until its exit was reported, or until EndLease.
func TestLeases(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("log")
	p := h.hosted("c")
	check := func(want ...Process) {
		t.Helper()
		if diff := cmp.Diff(want, h.box.Leases()); diff != "" {
			t.Errorf("leases (-want +got):\n%s", diff)
		}
	}
	check()
	s := h.surrogate(Process{Container: "c"})
	s.connect()
	check(s.id)
	s.end()
	check(s.id)
	h.must(h.box.EndLease(s.id))
	h.must(h.box.EndLease(Process{Container: "log"}))
	check()
	h.crash()
	h.must(h.restore(h.logFiles("log")))
	check()
	s.connect()
	check(s.id)
	p.finish(exited(0))
	s.exit()
	check()
	if err := h.box.EndLease(Process{Container: "none"}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("EndLease of no process: %v", err)
	}
}

// TestDeletedBeforeAttached: no goroutine waits for files that never come.
func TestDeletedBeforeAttached(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.hosted("c")
	id := Process{Container: "c"}
	h.write(p, "stdout", "lost")
	p.finish(exited(0))
	h.wait(id)
	h.box.processes.mu.Lock()
	pumped := h.box.all[id].pumped
	h.box.processes.mu.Unlock()
	_, err := h.box.DeleteProcess(h.ctx, id)
	h.must(err)
	select {
	case <-pumped:
	case <-h.ctx.Done():
		t.Error("its output is still awaited")
	}
}
