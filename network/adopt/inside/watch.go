package inside

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watched are the kernel's messages on interfaces, addresses and routes.
const watched = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
	unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// A client makes several changes for one interface. Changes reports them together: when there was no further one for
// settled, or after longest.
const (
	settled = 30 * time.Millisecond
	longest = 300 * time.Millisecond
)

// Listen returns a socket that receives the kernel's messages on the calling thread's namespace, for Changes.
func Listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: watched}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// Changes reports changes of a network namespace's interfaces, addresses and routes, except for the taps of a VM. The
// channel holds a value if there was a change that its reader has not seen. Changes misses no change since Listen. It
// closes the socket. It closes the channel when ctx ends or the kernel's messages cannot be read.
func Changes(ctx context.Context, socket *os.File) <-chan struct{} {
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	go func() {
		defer close(changes)
		defer socket.Close()
		defer stop()
		buf := make([]byte, 16<<10)
		for {
			n, err := socket.Read(buf)
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			if err == nil && ofTaps(buf[:n]) {
				continue
			}
			if !settle(ctx, socket, buf) {
				return
			}
			select {
			case changes <- struct{}{}:
			default: // the reader has not seen the last change yet
			}
		}
	}()
	return changes
}

// TapPrefix begins the names of a VM's taps.
const TapPrefix = "bulkhead"

// ofTaps reports whether all of the kernel's messages are on a VM's taps.
func ofTaps(b []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return false
	}
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWLINK && m.Header.Type != unix.RTM_DELLINK {
			return false
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil || !slices.ContainsFunc(attributes, func(a syscall.NetlinkRouteAttr) bool {
			return a.Attr.Type == unix.IFLA_IFNAME && strings.HasPrefix(string(a.Value), TapPrefix)
		}) {
			return false
		}
	}
	return len(messages) > 0
}

// settle reads messages until none comes. It reports whether to continue.
func settle(ctx context.Context, socket *os.File, message []byte) bool {
	for end := time.Now().Add(longest); time.Now().Before(end); {
		if err := socket.SetReadDeadline(time.Now().Add(settled)); err != nil {
			return false
		}
		_, err := socket.Read(message)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return false
		}
	}
	err := socket.SetReadDeadline(time.Time{})
	// The end of ctx may have set a deadline before that.
	return err == nil && ctx.Err() == nil
}
