package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
	"github.com/bulkhead-project/bulkhead/shim/hostio"
)

var (
	container = sandbox.Process{Container: "c"}
	command   = sandbox.Process{Container: "c", Exec: "e"}
)

// fake is a sandbox with the processes container and command.
type fake struct {
	mu       sync.Mutex
	calls    []string // SignalProcess, ResizeProcess, EndLease and Discard
	changed  chan struct{}
	refuse   error // of the next call of SignalProcess
	leases   []sandbox.Process
	attached map[sandbox.Process]sandbox.HostFiles
	ended    map[sandbox.Process]chan sandbox.Exit
	stopped  map[sandbox.Process]bool
}

func newFake() *fake {
	f := &fake{
		changed: make(chan struct{}), attached: map[sandbox.Process]sandbox.HostFiles{},
		ended: map[sandbox.Process]chan sandbox.Exit{}, stopped: map[sandbox.Process]bool{},
	}
	for _, p := range []sandbox.Process{container, command} {
		f.ended[p] = make(chan sandbox.Exit, 2)
	}
	return f
}

func (f *fake) AttachFiles(ctx context.Context, p sandbox.Process, files sandbox.HostFiles, attached func()) (sandbox.Exit, error) {
	defer fdpass.CloseAll(append([]*os.File{files.Terminal, files.Stdin, files.Stdout, files.Stderr}, files.Progress[:]...))
	f.mu.Lock()
	_, busy := f.attached[p]
	ended := f.ended[p]
	if !busy && ended != nil {
		f.attached[p] = files
	}
	f.mu.Unlock()
	switch {
	case ended == nil:
		return sandbox.Exit{}, fmt.Errorf("attach: %w", errdefs.ErrNotFound)
	case busy:
		return sandbox.Exit{}, fmt.Errorf("attach: %w", sandbox.ErrAttached)
	case files.Terminal != nil:
		return sandbox.Exit{}, errors.New("no terminals here")
	}
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.attached, p)
	}()
	attached()
	select {
	case exit := <-ended:
		return exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (f *fake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	close(f.changed)
	f.changed = make(chan struct{})
}

// expect waits for exactly these calls, and forgets them.
func (f *fake) expect(t *testing.T, want ...string) {
	t.Helper()
	late := time.After(testdeadline.For(10 * time.Second))
	for {
		f.mu.Lock()
		got, changed := slices.Clone(f.calls), f.changed
		f.mu.Unlock()
		if slices.Equal(got, want) {
			break
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("calls (-want +got):\n%s", cmp.Diff(want, got))
		}
	}
	f.forget()
}

// forget forgets the calls and returns them.
func (f *fake) forget() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fake) Leases() []sandbox.Process { return f.leases }

func (f *fake) EndLease(p sandbox.Process) error {
	f.note("end the lease of %v", p)
	return nil
}

func (f *fake) ProcessStatus(p sandbox.Process) (sandbox.ProcessStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended[p] == nil {
		return sandbox.ProcessStatus{}, errdefs.ErrNotFound
	}
	st := sandbox.ProcessStatus{Process: p, State: sandbox.Running}
	if f.stopped[p] {
		st.State = sandbox.Stopped
	}
	return st, nil
}

func (f *fake) ResizeProcess(_ context.Context, p sandbox.Process, width, height uint16) error {
	f.note("resize %v to %d by %d", p, width, height)
	return nil
}

func (f *fake) SignalProcess(_ context.Context, p sandbox.Process, sig unix.Signal, all bool) error {
	f.note("signal %v with %d, all %v", p, sig, all)
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.refuse
	f.refuse = nil
	return err
}

func (f *fake) WaitProcess(context.Context, sandbox.Process) (sandbox.Exit, error) {
	return sandbox.Exit{}, nil
}

func (f *fake) discard(_ context.Context, p sandbox.Process) { f.note("discard %v", p) }

// world is a served directory of a pod.
type world struct {
	t      *testing.T
	fake   *fake
	server *Server
	path   string
	dir    *hostio.Dir
	rows   uint16 // of the terminal in hello
}

func serve(t *testing.T, change ...func(*Server)) *world {
	t.Helper()
	w := &world{t: t, fake: newFake(), path: t.TempDir()}
	w.server = New(Options{Sandbox: w.fake, Discard: w.fake.discard, Logger: slog.New(slog.DiscardHandler)})
	for _, f := range change {
		f(w.server)
	}
	l, err := podsock.Listen(filepath.Join(w.path, hostio.Name))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		w.server.Serve(l)
	}()
	t.Cleanup(func() {
		w.server.Close()
		<-served
	})
	if w.dir, err = hostio.OpenDir(w.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.dir.Close() })
	return w
}

func (w *world) dial(p sandbox.Process) (*hostio.Conn, error) {
	kept, err := hostio.NewProgress()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(kept.Close)
	return hostio.Dial(w.t.Context(), w.dir, hostio.Process{Container: p.Container, Exec: p.Exec}, hostio.Files{
		Stdin: os.Stdin, Stderr: os.Stderr, Progress: kept,
	})
}

func (w *world) connect(p sandbox.Process) *hostio.Conn {
	w.t.Helper()
	c, err := w.dial(p)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

func TestExit(t *testing.T) {
	w := serve(t)
	for p, calls := range map[sandbox.Process][]string{container: nil, command: {"discard {c e}"}} {
		c := w.connect(p)
		files := w.fake.attached[p]
		if files.Stdin == nil || files.Stdout != nil || files.Stderr == nil || files.Terminal != nil || files.Progress == nil {
			t.Errorf("%v: the sandbox got %+v", p, files)
		}
		w.fake.ended[p] <- sandbox.Exit{Code: 137, Signal: 9, Reason: sandbox.ReasonVMKilled, Message: "gone"}
		exit, err := c.Wait(t.Context())
		if want := (hostio.Exit{Code: 137, Signal: 9, Reason: "VMKilled", Message: "gone"}); exit != want || err != nil {
			t.Errorf("%v: exit %+v, %v", p, exit, err)
		}
		c.Close()
		w.fake.expect(t, calls...)
	}
}

// TestFrames: sizes and signals reach the process.
func TestFrames(t *testing.T) {
	w := serve(t)
	conn := w.raw()
	w.hello(conn, container)
	send(conn, hostio.KindResize, []byte{0, 24, 0, 80})
	send(conn, hostio.KindSignal, []byte{15})
	w.fake.expect(t, "resize {c } to 80 by 24", "signal {c } with 15, all false")
	send(conn, hostio.KindLeave, nil)
	w.fake.expect(t, "end the lease of {c }")
}

// TestSurrogateDies: its process is killed, however often that takes. The same holds for one that sends garbage.
func TestSurrogateDies(t *testing.T) {
	for name, tc := range map[string]struct {
		p      sandbox.Process
		refuse error
		end    string // frames instead of the connection's end
		want   []string
	}{
		"of a container":        {p: container, want: []string{"signal {c } with 9, all true"}},
		"of a command":          {p: command, want: []string{"signal {c e} with 9, all false", "discard {c e}"}},
		"while the VM is stuck": {p: container, refuse: sandbox.ErrVMStopped, want: slices.Repeat([]string{"signal {c } with 9, all true"}, 2)},
		"an unknown frame":      {p: container, end: "\x09\x00\x00", want: []string{"signal {c } with 9, all true"}},
		"a long frame":          {p: container, end: "\x03\xff\xff", want: []string{"signal {c } with 9, all true"}},
		"a short size":          {p: container, end: "\x02\x00\x01x", want: []string{"signal {c } with 9, all true"}},
		"a second hello":        {p: container, end: "\x01\x00\x00", want: []string{"signal {c } with 9, all true"}},
		"a goodbye with more":   {p: container, end: "\x04\x00\x01x", want: []string{"signal {c } with 9, all true"}},
		"half a frame":          {p: container, end: "\x03", want: []string{"signal {c } with 9, all true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serve(t)
			w.fake.refuse = tc.refuse
			conn := w.raw()
			w.hello(conn, tc.p)
			if _, err := io.WriteString(conn, tc.end); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			w.fake.expect(t, tc.want...)
		})
	}
}

// raw connects without the client of hostio.
func (w *world) raw() *net.UnixConn {
	w.t.Helper()
	conn, err := podsock.Dial(w.t.Context(), w.path, hostio.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testdeadline.For(10 * time.Second)))
	return conn
}

// hello sends a good first message and expects that it is accepted.
func (w *world) hello(conn *net.UnixConn, p sandbox.Process) {
	w.t.Helper()
	b, err := hostio.Hello{Process: hostio.Process{Container: p.Container, Exec: p.Exec}, Rows: w.rows, Columns: 2 * w.rows}.Encode()
	if err == nil {
		err = fdpass.Send(conn, hostio.AppendFrame(nil, hostio.KindHello, b), slices.Repeat([]*os.File{os.Stdin}, progress.Count)...)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if kind, _, err := hostio.ReadFrame(conn); kind != hostio.KindAccepted || err != nil {
		w.t.Fatalf("answer of kind %d, %v", kind, err)
	}
}

// TestSize: a process has its terminal's size when its surrogate is accepted.
func TestSize(t *testing.T) {
	w := serve(t)
	w.rows = 24
	w.hello(w.raw(), container)
	if calls := w.fake.forget(); !slices.Equal(calls, []string{"resize {c } to 48 by 24"}) {
		t.Errorf("calls %q", calls)
	}
}

// TestDeletedMeanwhile: a process that was deleted or has ended is not killed.
func TestDeletedMeanwhile(t *testing.T) {
	w := serve(t)
	c := w.connect(container)
	w.fake.mu.Lock()
	delete(w.fake.ended, container)
	w.fake.mu.Unlock()
	c.Close()
	c = w.connect(command)
	w.fake.mu.Lock()
	w.fake.stopped[command] = true
	w.fake.mu.Unlock()
	c.Close()
	w.fake.expect(t, "discard {c e}")
}

func TestRefused(t *testing.T) {
	w := serve(t)
	w.connect(container)
	for p, want := range map[sandbox.Process]error{
		{Container: "none"}: hostio.ErrNotFound,
		container:           hostio.ErrBusy,
	} {
		if _, err := w.dial(p); !errors.Is(err, want) {
			t.Errorf("Dial for %v: got %v, want %v", p, err, want)
		}
	}
	w.fake.expect(t)
}

// TestHostileClients are refused, and their files are closed.
func TestHostileClients(t *testing.T) {
	hello, err := hostio.Hello{Process: hostio.Process{Container: "c"}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	good := hostio.AppendFrame(nil, hostio.KindHello, hello)
	terminal, err := hostio.Hello{Process: hostio.Process{Container: "c"}, Terminal: true}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		message []byte
		files   int
	}{
		"garbage":           {[]byte("GET / HTTP/1.1\r\n\r\n"), 0},
		"no files":          {good, 0},
		"too few files":     {good, progress.Count - 1},
		"too many files":    {good, progress.Count + 1},
		"very many files":   {good, 250},
		"a long frame":      {append([]byte{1, 0xff, 0xff}, make([]byte, 60000)...), progress.Count},
		"half a frame":      {good[:5], progress.Count},
		"two frames":        {append(slices.Clone(good), good...), progress.Count},
		"a wrong first one": {hostio.AppendFrame(nil, hostio.KindLeave, nil), progress.Count},
		"another version":   {hostio.AppendFrame(nil, hostio.KindHello, append([]byte{9}, hello[1:]...)), progress.Count},
		"nothing":           {nil, 0},
		"a terminal":        {hostio.AppendFrame(nil, hostio.KindHello, terminal), progress.Count + 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, func(s *Server) { s.hello = 50 * time.Millisecond })
			conn := w.raw()
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			if len(tc.message) > 0 {
				var rights []byte
				if tc.files > 0 {
					rights = unix.UnixRights(slices.Repeat([]int{int(writer.Fd())}, tc.files)...)
				}
				if _, _, err := conn.WriteMsgUnix(tc.message, rights, nil); err != nil {
					t.Fatal(err)
				}
			}
			writer.Close()
			kind, _, err := hostio.ReadFrame(conn)
			if kind != hostio.KindRefused && !errors.Is(err, unix.ECONNRESET) { // it has not read all
				t.Errorf("answer of kind %d, %v", kind, err)
			}
			_ = reader.SetDeadline(time.Now().Add(testdeadline.For(10 * time.Second)))
			if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("its files are not closed: %v", err)
			}
			w.fake.expect(t)
		})
	}
}

// TestConnectionsAreBounded: further ones are refused, and one that ends makes room.
func TestConnectionsAreBounded(t *testing.T) {
	w := serve(t)
	var conns []*net.UnixConn
	for range MaxConns {
		conns = append(conns, w.raw())
	}
	// The refusal may come before the first message is sent.
	if _, err := w.dial(container); !errors.Is(err, hostio.ErrBusy) && !errors.Is(err, hostio.ErrNotServed) {
		t.Errorf("one too many: got %v", err)
	}
	conns[7].Close()
	for late := time.Now().Add(testdeadline.For(10 * time.Second)); ; {
		c, err := w.dial(container)
		if err == nil {
			c.Leave()
			return
		}
		if time.Now().After(late) {
			t.Fatalf("one that ended made no room: %v", err)
		}
	}
}

// TestClose: the end of the shim kills no process, and the surrogate notices it.
func TestClose(t *testing.T) {
	w := serve(t)
	w.connect(container)
	conn := w.raw()
	w.hello(conn, command)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	w.server.Drain(ctx)
	if _, err := w.dial(container); !errors.Is(err, hostio.ErrNotServed) {
		t.Errorf("Dial after Drain: got %v", err)
	}
	w.server.Close()
	if _, _, err := hostio.ReadFrame(conn); !errors.Is(err, io.EOF) {
		t.Errorf("after Close: got %v", err)
	}
	w.fake.expect(t)
}

// TestDrain waits for the exits that are being reported.
func TestDrain(t *testing.T) {
	w := serve(t)
	c := w.connect(container)
	w.fake.ended[container] <- sandbox.Exit{Code: 3}
	w.server.Drain(t.Context())
	if exit, err := c.Wait(t.Context()); exit.Code != 3 || err != nil {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

// TestReturnPatience: a process of an earlier shim is killed unless its surrogate comes in time.
func TestReturnPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.leases = []sandbox.Process{container, command}
		s := New(Options{Sandbox: f, Discard: f.discard, Logger: slog.New(slog.DiscardHandler)})
		time.Sleep(ReturnPatience / 2)
		s.returned(container)
		s.returned(container)
		time.Sleep(ReturnPatience/2 - time.Millisecond)
		synctest.Wait()
		if calls := f.forget(); len(calls) > 0 {
			t.Errorf("within the patience: %q", calls)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if calls, want := f.forget(), []string{"signal {c e} with 9, all false", "discard {c e}"}; !slices.Equal(calls, want) {
			t.Errorf("after the patience: %q, want %q", calls, want)
		}
		s.Close()

		s = New(Options{Sandbox: f, Discard: f.discard, Logger: slog.New(slog.DiscardHandler)})
		s.Close()
		time.Sleep(2 * ReturnPatience)
		if calls := f.forget(); len(calls) > 0 {
			t.Errorf("after the end of the shim: %q", calls)
		}
	})
}
