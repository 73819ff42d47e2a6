package netlink

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitLinks calls look at once and whenever an interface appears or changes, until it returns true or an error. After
// limit, the error matches os.ErrDeadlineExceeded.
func AwaitLinks(limit time.Duration, look func() (bool, error)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open rtnetlink: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return fmt.Errorf("listen for interfaces: %w", err)
	}
	buf := make([]byte, 4096) // longer messages are cut off; only their arrival counts
	for end := time.Now().Add(limit); ; {
		if done, err := look(); done || err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		// A timeout of 0 would mean none.
		wait := unix.NsecToTimeval(max(left, time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			return fmt.Errorf("listen for interfaces: %w", err)
		}
		switch _, _, err := unix.Recvfrom(fd, buf, 0); err {
		case nil, unix.EINTR, unix.EAGAIN, unix.ENOBUFS:
		default:
			return fmt.Errorf("listen for interfaces: %w", err)
		}
	}
}
