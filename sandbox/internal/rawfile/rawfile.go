// Package rawfile reads and writes open files of any kind that other processes have too: pipes, fifos, sockets, files,
// devices and terminals, blocking or not. It changes no flag of them, because the flags belong to all of their users.
//
// A call waits until the file is ready, without a thread of its own, and only then reads or writes. So a wait can be
// interrupted, although a system call cannot.
package rawfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Piece is the most bytes that one Write passes to a file that may block. A pipe that is ready has room for so many.
const Piece = 4096

// ErrInterrupted is returned by calls after Interrupt.
var ErrInterrupted = errors.New("interrupted")

// Direction is the use of a file.
type Direction uint32

// The directions.
const (
	ForRead  Direction = unix.EPOLLIN
	ForWrite Direction = unix.EPOLLOUT
)

// File is one use of an open file. Only one goroutine at a time may read or write. The other methods are safe for
// concurrent use.
//
// A system call may block although the file was ready: another process may have been quicker, and a terminal may have
// room for a part only. That call returns when the file is ready again, whatever happens to the File.
type File struct {
	events uint32
	ready  *os.File // an epoll instance that watches the file; nil if the file is always ready
	conn   syscall.RawConn

	mu     sync.Mutex
	fd     int
	users  int  // running system calls
	closed bool // no new system calls
	broken bool // Interrupt was called
}

// New returns a File for a duplicate of f, which it leaves open.
func New(f *os.File, d Direction) (*File, error) {
	fd, err := duplicate(f)
	if err != nil {
		return nil, fmt.Errorf("use %s: %w", f.Name(), err)
	}
	file := &File{fd: fd, events: uint32(d)}
	if err := file.watch(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch %s: %w", f.Name(), err)
	}
	return file, nil
}

// duplicate does not use Fd, which changes a flag of the file.
func duplicate(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var dupErr error
	err = raw.Control(func(old uintptr) { fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(err, dupErr)
}

// watch creates the epoll instance. The Go runtime waits for it like for any file.
func (f *File) watch() error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, f.fd, &unix.EpollEvent{Events: f.events | unix.EPOLLONESHOT, Fd: int32(f.fd)})
	if errors.Is(err, unix.EPERM) { // a file or device without readiness
		unix.Close(ep)
		return nil
	}
	if err == nil {
		err = unix.SetNonblock(ep, true) // makes NewFile use the runtime's poller
	}
	if err != nil {
		unix.Close(ep)
		return err
	}
	f.ready = os.NewFile(uintptr(ep), "epoll")
	if f.conn, err = f.ready.SyscallConn(); err != nil {
		f.ready.Close()
	}
	return err
}

// MayBlock reports whether the file has readiness. Only then its system calls may block.
func (f *File) MayBlock() bool { return f.ready != nil }

// Read waits for bytes and reads some. It returns io.EOF at the end.
func (f *File) Read(p []byte) (int, error) {
	n, err := f.Do(func(fd int) (int, error) { return unix.Read(fd, p) })
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// Write waits for room and writes some of p, at most Piece bytes if the file may block. The error matches unix.EPIPE if
// no process reads the file any more.
func (f *File) Write(p []byte) (int, error) {
	if f.ready != nil {
		p = p[:min(len(p), Piece)]
	}
	return f.Do(func(fd int) (int, error) { return unix.Write(fd, p) })
}

// Do makes a system call when the file is ready, and repeats it as long as its error matches unix.EAGAIN.
func (f *File) Do(do func(fd int) (int, error)) (int, error) {
	for {
		if err := f.wait(); err != nil {
			return 0, err
		}
		fd, err := f.acquire()
		if err != nil {
			return 0, err
		}
		n, err := do(fd)
		f.release()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return max(n, 0), err
		}
	}
}

// wait waits until the file is ready.
func (f *File) wait() error {
	if f.ready == nil {
		return f.state()
	}
	err := f.arm()
	if err == nil {
		err = f.conn.Read(func(ep uintptr) bool { return pending(int(ep)) })
	}
	if err == nil {
		return nil
	}
	if err := f.state(); err != nil {
		return err
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	// Drain has ended the wait.
	isReady := false
	if err := f.conn.Control(func(ep uintptr) { isReady = pending(int(ep)) }); err != nil || isReady {
		return err
	}
	return io.EOF
}

// pending reports whether an epoll instance has an event.
func pending(ep int) bool {
	var events [1]unix.EpollEvent
	n, err := unix.EpollWait(ep, events[:], 0)
	return err == nil && n > 0
}

// arm asks for one event.
func (f *File) arm() error {
	fd, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	var ctlErr error
	err = f.conn.Control(func(ep uintptr) {
		ctlErr = unix.EpollCtl(int(ep), unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: f.events | unix.EPOLLONESHOT, Fd: int32(fd)})
	})
	return errors.Join(err, ctlErr)
}

func (f *File) state() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken || f.closed {
		return ErrInterrupted
	}
	return nil
}

// acquire returns the descriptor for one system call. The descriptor stays open until release, so its number cannot
// belong to another file meanwhile.
func (f *File) acquire() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken || f.closed {
		return 0, ErrInterrupted
	}
	f.users++
	return f.fd, nil
}

func (f *File) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
	f.closeUnused()
}

// Interrupt ends the current wait and all later calls with ErrInterrupted.
func (f *File) Interrupt() {
	f.mu.Lock()
	f.broken = true
	f.mu.Unlock()
	f.Drain()
}

// Drain makes Read return io.EOF as soon as no bytes are waiting, although some may still come.
func (f *File) Drain() {
	if f.ready != nil {
		_ = f.ready.SetReadDeadline(time.Unix(1, 0)) // fails if it is closed
	}
}

// Close interrupts the calls and closes the file as soon as no system call uses it. It does not wait.
func (f *File) Close() {
	f.Interrupt()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	if f.ready != nil {
		f.ready.Close()
	}
	f.closeUnused()
}

// closeUnused closes the descriptor once; the caller holds mu.
func (f *File) closeUnused() {
	if f.closed && f.users == 0 && f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}
