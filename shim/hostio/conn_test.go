package hostio

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
)

// pod is the state directory of a pod, with a shim that a test plays.
type pod struct {
	path string
	l    *net.UnixListener
}

func newPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{path: filepath.Join(t.TempDir(), "pod")}
	if err := os.Mkdir(p.path, 0o700); err != nil {
		t.Fatal(err)
	}
	p.listen(t)
	return p
}

func (p *pod) listen(t *testing.T) {
	t.Helper()
	l, err := podsock.Listen(filepath.Join(p.path, Name))
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // a killed shim leaves its socket
	p.l = l
	t.Cleanup(func() { l.Close() })
}

func (p *pod) open(t *testing.T) *Dir {
	t.Helper()
	d, err := OpenDir(p.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// peer is the shim's end of one connection.
type peer struct {
	*net.UnixConn
	hello Hello
	files []*os.File
}

// accept accepts a connection and reads its first message.
func (p *pod) accept(t *testing.T) *peer {
	t.Helper()
	_ = p.l.SetDeadline(time.Now().Add(testdeadline.For(10 * time.Second)))
	conn, err := p.l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testdeadline.For(10 * time.Second)))
	b := make([]byte, 4096)
	n, files, err := fdpass.Receive(conn, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fdpass.CloseAll(files) })
	kind, payload, err := ParseFrame(b[:n])
	if err != nil || kind != KindHello {
		t.Fatalf("first frame of kind %d, %v", kind, err)
	}
	h, err := DecodeHello(payload)
	if err != nil {
		t.Fatal(err)
	}
	return &peer{conn, h, files}
}

func (p *peer) send(t *testing.T, kind Kind, payload []byte) {
	t.Helper()
	if _, err := p.Write(AppendFrame(nil, kind, payload)); err != nil {
		t.Fatal(err)
	}
}

// expect reads one frame.
func (p *peer) expect(t *testing.T, kind Kind, payload string) {
	t.Helper()
	k, b, err := ReadFrame(p)
	if k != kind || string(b) != payload || err != nil {
		t.Errorf("got a frame of kind %d, %q, %v, want %d, %q", k, b, err, kind, payload)
	}
}

// files returns new files for a process.
func files(t *testing.T) Files {
	t.Helper()
	p, err := NewProgress()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return Files{Progress: p}
}

// dial lets a surrogate connect and accepts it.
func (p *pod) dial(t *testing.T, d *Dir, f Files) (*Conn, *peer) {
	t.Helper()
	type result struct {
		c   *Conn
		err error
	}
	dialed := make(chan result, 1)
	go func() {
		c, err := Dial(t.Context(), d, Process{Container: "c", Exec: "e"}, f)
		dialed <- result{c, err}
	}()
	shim := p.accept(t)
	shim.send(t, KindAccepted, nil)
	r := <-dialed
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(r.c.Close)
	return r.c, shim
}

// TestFilesArrive: the shim gets the very files, and no flag of them changes.
func TestFilesArrive(t *testing.T) {
	p := newPod(t)
	d := p.open(t)
	f := files(t)
	r, w, err := os.Pipe() // not blocking
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	f.Stdout = w
	if f.Stderr, err = os.OpenFile(filepath.Join(p.path, "err"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		t.Fatal(err)
	}
	defer f.Stderr.Close()
	flags := func() (list []int) {
		for _, file := range f.list() {
			fd, err := duplicate(file)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			n, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, n)
		}
		return list
	}
	before := flags()
	_, shim := p.dial(t, d, f)
	want := Hello{Process: Process{Container: "c", Exec: "e"}, Stdout: true, Stderr: true}
	if diff := cmp.Diff(want, shim.hello); diff != "" {
		t.Errorf("hello (-want +got):\n%s", diff)
	}
	if len(shim.files) != want.Files() {
		t.Fatalf("got %d files, want %d", len(shim.files), want.Files())
	}
	for i, file := range f.list() {
		a, errA := file.Stat()
		b, errB := shim.files[i].Stat()
		if err := errors.Join(errA, errB); err != nil || !os.SameFile(a, b) {
			t.Errorf("file %d is another one, %v", i, err)
		}
	}
	if diff := cmp.Diff(before, flags()); diff != "" {
		t.Errorf("flags of the files (-before +after):\n%s", diff)
	}
}

func TestWait(t *testing.T) {
	p := newPod(t)
	c, shim := p.dial(t, p.open(t), files(t))
	c.Signal(15)
	c.Signal(0)
	c.Signal(65)
	shim.expect(t, KindSignal, "\x0f")
	want := Exit{Code: 3, Reason: "Error"}
	shim.send(t, KindExit, want.Encode())
	if got, err := c.Wait(t.Context()); got != want || err != nil {
		t.Errorf("Wait: got %+v, %v, want %+v", got, err, want)
	}
	c.Close()
	if _, err := shim.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after Close the shim reads %v", err)
	}
}

// TestNextShim: the surrogate gives its files to the next shim, with the terminal's size and the signals that came
// meanwhile.
func TestNextShim(t *testing.T) {
	p := newPod(t)
	f := files(t)
	_, slave := testpty.Open(t)
	f.Terminal = slave
	resize := func(rows, columns uint16) {
		t.Helper()
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	resize(24, 80)
	c, shim := p.dial(t, p.open(t), f)
	if shim.hello.Rows != 24 || shim.hello.Columns != 80 {
		t.Errorf("the first shim got %+v", shim.hello)
	}
	resize(25, 81)
	c.Resize(25, 81)
	shim.expect(t, KindResize, "\x00\x19\x00\x51")
	type result struct {
		Exit
		err error
	}
	ended := make(chan result, 1)
	go func() {
		e, err := c.Wait(t.Context())
		ended <- result{e, err}
	}()
	for range 3 {
		p.l.Close()
		shim.Close()
		for c.connected() {
			time.Sleep(time.Millisecond)
		}
		c.Signal(10)
		c.Signal(1)
		c.Signal(10)
		p.listen(t)
		shim = p.accept(t)
		if len(shim.files) != shim.hello.Files() || shim.hello.Container != "c" || shim.hello.Rows != 25 {
			t.Errorf("the next shim got %+v with %d files", shim.hello, len(shim.files))
		}
		shim.send(t, KindAccepted, nil)
		shim.expect(t, KindSignal, "\x01")
		shim.expect(t, KindSignal, "\x0a")
	}
	shim.send(t, KindExit, Exit{Code: 7}.Encode())
	if r := <-ended; r.Code != 7 || r.err != nil {
		t.Errorf("Wait: got %+v", r)
	}
}

// connected reports whether there is a connection to a shim.
func (c *Conn) connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sock != nil
}

func TestLeave(t *testing.T) {
	p := newPod(t)
	d := p.open(t)
	c, shim := p.dial(t, d, files(t))
	c.Leave()
	shim.expect(t, KindLeave, "")
	if _, err := c.Wait(t.Context()); !errors.Is(err, ErrLeft) {
		t.Errorf("Wait after Leave: got %v", err)
	}
	c, shim = p.dial(t, d, files(t))
	shim.Close()
	p.l.Close()
	left := make(chan error, 1)
	go func() {
		_, err := c.Wait(t.Context())
		left <- err
	}()
	for c.connected() {
		time.Sleep(time.Millisecond)
	}
	c.Leave() // the next shim must know it, or it would kill the process
	p.listen(t)
	shim = p.accept(t)
	shim.send(t, KindAccepted, nil)
	shim.expect(t, KindLeave, "")
	if err := <-left; !errors.Is(err, ErrLeft) {
		t.Errorf("Wait, left between two shims: got %v", err)
	}
}

// TestDialFails has a shim that answers wrongly.
func TestDialFails(t *testing.T) {
	for name, tc := range map[string]struct {
		answer []byte
		want   error
	}{
		"an unknown process": {AppendFrame(nil, KindRefused, EncodeRefusal(ErrNotFound, "x")), ErrNotFound},
		"a second surrogate": {AppendFrame(nil, KindRefused, EncodeRefusal(ErrBusy, "x")), ErrBusy},
		"an unknown kind":    {AppendFrame(nil, 0x99, nil), ErrProtocol},
		"garbage":            {[]byte("\x81\xff\xffgarbage"), ErrProtocol},
		"no answer":          {nil, ErrNotServed},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			d := p.open(t)
			dialed := make(chan error, 1)
			go func() {
				_, err := Dial(t.Context(), d, Process{Container: "c"}, files(t))
				dialed <- err
			}()
			shim := p.accept(t)
			if _, err := shim.Write(tc.answer); err != nil {
				t.Fatal(err)
			}
			shim.Close()
			if err := <-dialed; !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestWaitFails has a shim that breaks the protocol, refuses the process, or goes for good.
func TestWaitFails(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(t *testing.T, p *pod, shim *peer)
		want error
	}{
		"a wrong frame": {func(t *testing.T, _ *pod, shim *peer) { shim.send(t, KindAccepted, nil) }, ErrProtocol},
		"a wrong exit":  {func(t *testing.T, _ *pod, shim *peer) { shim.send(t, KindExit, nil) }, ErrProtocol},
		"a long frame":  {func(_ *testing.T, _ *pod, shim *peer) { _, _ = shim.Write([]byte{0x83, 0xff, 0xff}) }, ErrProtocol},
		"the next shim does not know it": {func(t *testing.T, p *pod, shim *peer) {
			shim.Close()
			shim = p.accept(t)
			shim.send(t, KindRefused, EncodeRefusal(ErrNotFound, "x"))
		}, ErrNotFound},
		"the pod is gone": {func(t *testing.T, p *pod, shim *peer) {
			p.l.Close()
			shim.Close()
			if err := os.RemoveAll(p.path); err != nil {
				t.Error(err)
			}
		}, ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			c, shim := p.dial(t, p.open(t), files(t))
			waited := make(chan error, 1)
			go func() {
				_, err := c.Wait(t.Context())
				waited <- err
			}()
			tc.do(t, p, shim)
			if err := <-waited; !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestWaitIsCancelled with a shim, and between two.
func TestWaitIsCancelled(t *testing.T) {
	p := newPod(t)
	c, shim := p.dial(t, p.open(t), files(t))
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		cancel()
		shim.Close()
		p.l.Close()
	}
	p.listen(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, p.open(t), Process{Container: "c"}, files(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial to a shim that does not answer: got %v", err)
	}
}

// TestWithoutPath: a surrogate that has changed its root still finds the directory, and whatever lies at /proc there
// has no effect. The working directory of the process stays.
func TestWithoutPath(t *testing.T) {
	p := newPod(t)
	d := p.open(t)
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.path, p.path+"-moved"); err != nil {
		t.Fatal(err)
	}
	p.dial(t, d, files(t))
	if after, err := os.Getwd(); after != before || err != nil {
		t.Errorf("working directory %s became %s, %v", before, after, err)
	}
}

// TestImpostors: no file that the owner of the directory puts there leads elsewhere.
func TestImpostors(t *testing.T) {
	other := newPod(t)
	for name, plant := range map[string]func(path string) error{
		"a link":      func(path string) error { return os.Symlink(filepath.Join(other.path, Name), path) },
		"a file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		p := &pod{path: t.TempDir()}
		if err := plant(filepath.Join(p.path, Name)); err != nil {
			t.Fatal(err)
		}
		if _, err := Dial(t.Context(), p.open(t), Process{Container: "c"}, files(t)); !errors.Is(err, ErrForeign) {
			t.Errorf("Dial to %s: got %v, want ErrForeign", name, err)
		}
	}
	empty := &pod{path: t.TempDir()}
	if _, err := Dial(t.Context(), empty.open(t), Process{Container: "c"}, files(t)); !errors.Is(err, ErrNotServed) {
		t.Errorf("Dial without a socket: got %v, want ErrNotServed", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(other.path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(link); err == nil {
		t.Error("OpenDir follows a link")
	}
}

// TestDialRefusesFiles that do not fit together.
func TestDialRefusesFiles(t *testing.T) {
	p := newPod(t)
	d := p.open(t)
	f := files(t)
	for name, f := range map[string]Files{
		"no progress":           {Stdin: os.Stdin},
		"a terminal and a file": {Terminal: os.Stdin, Stdout: os.Stdout, Progress: f.Progress},
	} {
		if _, err := Dial(t.Context(), d, Process{Container: "c"}, f); !errors.Is(err, ErrProtocol) {
			t.Errorf("Dial with %s: got %v", name, err)
		}
	}
	if _, err := Dial(t.Context(), d, Process{}, f); !errors.Is(err, ErrProtocol) {
		t.Errorf("Dial without a container: got %v", err)
	}
}
