package stdio

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// connect is the time for the client to open its end of stdin. Containerd's clients do so before they create a process.
const connect = 50 * time.Millisecond

// input is the front's part of a process's stdin, which is a fifo.
//
// The process reads the end of its input when the fifo has no writer. The front is a writer from hold until close, because a
// client also closes its end when it only disconnects. Before hold, the client's end counts: a client with little input ends
// it before the process exists. Such a client does not ask for close, as containerd's own shims hold stdin from then on too.
type input struct {
	path string

	mu     sync.Mutex
	probe  *os.File // the process's end, until hold
	writer *os.File
	closed bool
}

// open returns the process's end of the fifo at path.
func (i *input) open(path string) (*os.File, error) {
	opened := openWaiting("stdin", path, unix.O_RDONLY)
	var r opening
	timer := time.NewTimer(connect)
	defer timer.Stop()
	select {
	case r = <-opened:
	case <-timer.C:
		// Opening for both directions never blocks.
		writer, err := open("stdin", path, unix.O_RDWR)
		if err != nil {
			return nil, err
		}
		i.writer = writer
		r = <-opened
	}
	if r.err != nil {
		i.close()
		return nil, r.err
	}
	i.path = path
	fd, err := unix.FcntlInt(r.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		r.file.Close()
		i.close()
		return nil, os.NewSyscallError("fcntl", err)
	}
	i.probe = os.NewFile(uintptr(fd), path)
	return r.file, nil
}

// hold makes the front a writer, unless the client has come and gone.
func (i *input) hold() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.probe == nil || i.closed {
		return
	}
	fds := []unix.PollFd{{Fd: int32(i.probe.Fd()), Events: unix.POLLIN}}
	_, err := unix.Poll(fds, 0)
	if err == nil && fds[0].Revents&unix.POLLHUP == 0 && i.writer == nil {
		// There is a reader, so the open does not fail. A failure means that the input ends with the client.
		i.writer, _ = open("stdin", i.path, unix.O_WRONLY|unix.O_NONBLOCK)
	}
	i.probe.Close()
	i.probe = nil
}

// close ends the front's part. It is idempotent.
func (i *input) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.probe.Close() // fails on nil
	i.writer.Close()
	i.probe, i.writer = nil, nil
}
