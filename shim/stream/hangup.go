package stream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// OnHangup calls gone, once, when the other end of conn has closed it altogether:
// at once, where a Read would first have to take what was sent before. Whoever
// cannot read, because nobody takes what was read last, learns of it no other way.
// stop ends the watch, and returns when gone is not running and never will.
func OnHangup(conn *net.UnixConn, gone func()) (stop func(), err error) {
	// A descriptor of its own, for a Read of conn may be under way.
	watch, err := conn.File()
	if err != nil {
		return nil, err
	}
	raw, err := watch.SyscallConn()
	if err != nil {
		watch.Close()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if awaitHangup(raw) == nil {
			gone()
		}
	}()
	return func() {
		watch.Close()
		<-done
	}, nil
}

// awaitHangup waits until the other end of a unix connection has closed it
// altogether; an error says that it was closed here.
func awaitHangup(raw syscall.RawConn) error {
	// The poller wakes it at every change; an end of the other side's writing
	// alone is POLLRDHUP and no POLLHUP.
	return raw.Read(func(fd uintptr) bool {
		events := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(events, 0)
		return err == nil && events[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
}
