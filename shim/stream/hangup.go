package stream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// OnHangup calls gone once, when the other end of conn has closed the whole connection. Unlike a Read, it notices that
// before the sent bytes are read. A caller that cannot read, because its last bytes are still unused, learns of the
// close no other way. stop ends the watch, and returns when gone is not running and never will.
func OnHangup(conn *net.UnixConn, gone func()) (stop func(), err error) {
	// Duplicate the descriptor, because a Read of conn may be blocked.
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

// awaitHangup waits until the other end of a unix connection has closed all of it. It returns an error if this end was
// closed.
func awaitHangup(raw syscall.RawConn) error {
	// The poller wakes at every change. A closed writing side alone is POLLRDHUP, not POLLHUP.
	return raw.Read(func(fd uintptr) bool {
		events := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(events, 0)
		return err == nil && events[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
}
