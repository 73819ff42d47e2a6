// Package sockets runs single operations on sockets that do not block. Package net would make the agent a quarter larger.
package sockets

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Read runs do as soon as a socket is readable. os.File's methods would take an empty datagram for the end. The error
// matches os.ErrClosed if the socket is closed, or os.ErrDeadlineExceeded.
func Read(socket *os.File, do func(fd int) error) error { return run(socket, syscall.RawConn.Read, do) }

// Write runs do as soon as a socket is writable.
func Write(socket *os.File, do func(fd int) error) error {
	return run(socket, syscall.RawConn.Write, do)
}

func run(socket *os.File, wait func(syscall.RawConn, func(uintptr) bool) error, do func(fd int) error) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return os.ErrClosed
	}
	var done error
	err = wait(raw, func(fd uintptr) bool {
		done = do(int(fd))
		return !errors.Is(done, unix.EAGAIN)
	})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = os.ErrClosed
	}
	return errors.Join(err, done)
}
