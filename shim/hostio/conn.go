package hostio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/progress"
)

// Files are the open files for a process's standard streams, of any kind: pipes, fifos, sockets, files, devices and
// terminals, blocking or not. The caller keeps them open as long as the connection, because each new shim gets them too.
// The connection changes no flag of them, and neither does the shim.
type Files struct {
	// Stdin, Stdout and Stderr may be nil: then the process's stdin is empty, and the output is discarded.
	Stdin, Stdout, Stderr *os.File
	// Terminal replaces the three for a process with a terminal. It must be in raw mode. Such a process may also have Stdin
	// and Stdout, the two directions of its terminal; the surrogate does not know its size then.
	Terminal *os.File
	// Progress is the result of NewProgress, one for each process. The shim keeps there how much it has read and written.
	Progress *Progress
}

// Progress is some open files that only the shim uses.
type Progress = progress.Set

// NewProgress returns the Files.Progress of a new process. The caller closes it.
func NewProgress() (*Progress, error) { return progress.Create() }

func (f Files) list() (list []*os.File) {
	for _, file := range append([]*os.File{f.Terminal, f.Stdin, f.Stdout, f.Stderr}, f.Progress[:]...) {
		if file != nil {
			list = append(list, file)
		}
	}
	return list
}

func (f Files) hello(p Process) Hello {
	h := Hello{Process: p, Terminal: f.Terminal != nil, Stdin: f.Stdin != nil, Stdout: f.Stdout != nil, Stderr: f.Stderr != nil}
	if f.Terminal != nil {
		_ = control(f.Terminal, func(fd int) {
			if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
				h.Rows, h.Columns = size.Row, size.Col
			}
		})
	}
	return h
}

// control calls f with the descriptor. Fd would change a flag of the file for all processes that have it.
func control(file *os.File, f func(fd int)) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// Conn is the lease on a process in a VM. Dial returns it. When the shim dies, Wait connects to the next one. Its
// methods are safe for concurrent use, except that only one goroutine calls Wait.
type Conn struct {
	dir     *Dir
	process Process
	files   Files

	mu      sync.Mutex
	sock    *os.File // nil between two shims
	signals uint64   // bit n-1 is set for a signal n that was not sent yet
	leaving bool     // Leave was called
	closed  bool     // the connection has ended for good
}

// Dial connects to the shim of a pod once and gives it the files of a process. The shim must know the process: its
// container was created, or its exec was registered. ctx bounds only the call.
//
// The error matches ErrNotServed, ErrGone, ErrForeign, ErrNotFound, ErrBusy or ErrRefused. The process in the VM may be
// killed if the call fails for another reason, such as the end of ctx.
func Dial(ctx context.Context, dir *Dir, p Process, files Files) (*Conn, error) {
	if files.Progress == nil || files.Terminal != nil && (files.Stdin != nil || files.Stdout != nil || files.Stderr != nil) {
		return nil, fmt.Errorf("%w: a process needs its progress, and either a terminal or other files", ErrProtocol)
	}
	c := &Conn{dir: dir, process: p, files: files}
	if err := c.connect(ctx); err != nil {
		return nil, fmt.Errorf("process %s/%s: %w", p.Container, p.Exec, err)
	}
	return c, nil
}

// connect makes a new connection, and sends the signals that have come meanwhile.
func (c *Conn) connect(ctx context.Context) error {
	hello, err := c.files.hello(c.process).Encode()
	if err != nil {
		return err
	}
	sock, err := c.dir.connect()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = sock.SetDeadline(time.Unix(1, 0)) })
	if err = sendFiles(sock, AppendFrame(nil, KindHello, hello), c.files.list()); err == nil {
		err = accepted(sock)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		sock.Close()
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sock = sock
	c.flush()
	return nil
}

// accepted reads the shim's answer.
func accepted(sock *os.File) error {
	kind, payload, err := ReadFrame(sock)
	switch {
	case err != nil && errors.Is(err, ErrProtocol), err != nil && errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case err != nil: // the shim ended
		return fmt.Errorf("%w: %w", ErrNotServed, err)
	case kind == KindRefused:
		return decodeRefusal(payload)
	case kind != KindAccepted:
		return fmt.Errorf("%w: an answer of kind %d", ErrProtocol, kind)
	}
	return nil
}

// sendFiles sends a message with files.
func sendFiles(sock *os.File, message []byte, files []*os.File) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, f := range files {
		fd, err := duplicate(f)
		if err != nil {
			return fmt.Errorf("send %s: %w", f.Name(), err)
		}
		fds = append(fds, fd)
	}
	sent, rights := 0, unix.UnixRights(fds...)
	writeErr := raw.Write(func(fd uintptr) bool {
		sent, err = unix.SendmsgN(int(fd), message, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err = errors.Join(writeErr, err); err == nil && sent < len(message) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("%w: send the files: %w", ErrNotServed, err)
	}
	return nil
}

// duplicate returns a descriptor of the same open file.
func duplicate(f *os.File) (fd int, err error) {
	var dupErr error
	err = control(f, func(old int) { fd, dupErr = unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(err, dupErr)
}

// Resize sets the size of the process's terminal. The surrogate calls it after SIGWINCH. Dial, and Wait for each new
// shim, send the size of Files.Terminal with the files.
func (c *Conn) Resize(rows, columns uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(KindResize, encodeSize(rows, columns))
}

// Signal sends a signal (1 to 64) to the process. Between two shims it waits for the next one; of several equal signals
// only one is kept.
func (c *Conn) Signal(n int) {
	if n < 1 || n > 64 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.send(KindSignal, []byte{byte(n)}) {
		c.signals |= 1 << (n - 1)
	}
}

// Leave ends the lease and the connection without killing the process. Its output waits for the next surrogate. Between
// two shims, Wait first sends the goodbye to the next one. Wait then returns ErrLeft.
func (c *Conn) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	if c.send(KindLeave, nil) {
		c.close()
	}
}

// Close ends the connection, and with it the process unless it has ended.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close()
}

// close ends the connection for good; the caller holds mu.
func (c *Conn) close() {
	c.closed = true
	c.drop()
}

// drop closes the connection to a shim; the caller holds mu.
func (c *Conn) drop() {
	if c.sock != nil {
		c.sock.Close()
		c.sock = nil
	}
}

// flush sends the pending goodbye and signals to a new shim; the caller holds mu.
func (c *Conn) flush() {
	if c.closed {
		c.drop()
		return
	}
	if c.leaving {
		if c.send(KindLeave, nil) {
			c.close()
		}
		return
	}
	for n := 1; n <= 64; n++ {
		if bit := uint64(1) << (n - 1); c.signals&bit != 0 && c.send(KindSignal, []byte{byte(n)}) {
			c.signals &^= bit
		}
	}
}

// sendPatience bounds the wait for a shim that does not read a frame. A live shim reads at once.
const sendPatience = time.Second

// send sends a frame and reports whether that succeeded; the caller holds mu.
func (c *Conn) send(kind Kind, payload []byte) bool {
	if c.sock == nil {
		return false
	}
	_ = c.sock.SetWriteDeadline(time.Now().Add(sendPatience))
	_, err := c.sock.Write(AppendFrame(nil, kind, payload))
	return err == nil
}
