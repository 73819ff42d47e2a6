package adopt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watched are the kernel's messages on interfaces, addresses and routes.
const watched = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
	unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// A client makes several changes for one interface. Watch reports them together: when there was no further one for
// settled, or after longest.
const (
	settled = 30 * time.Millisecond
	longest = 300 * time.Millisecond
)

// Watch reports changes of a network namespace's interfaces, addresses and routes: the channel holds a value if there
// was a change that its reader has not seen. ns is nil for the calling thread's namespace. Watch sees every change after
// it returns. The channel is closed when ctx ends or the kernel's messages cannot be read.
func Watch(ctx context.Context, ns *os.File) (<-chan struct{}, error) {
	var socket *os.File
	err := in(ns, func() (err error) {
		socket, err = listen()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch the network namespace: %w", err)
	}
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	go func() {
		defer close(changes)
		defer socket.Close()
		defer stop()
		// The content of a message does not matter: the reader reads everything again.
		message := make([]byte, 4096)
		for {
			if _, err := socket.Read(message); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			if !settle(ctx, socket, message) {
				return
			}
			select {
			case changes <- struct{}{}:
			default: // the reader has not seen the last change yet
			}
		}
	}()
	return changes, nil
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

// listen returns a socket that receives the kernel's messages on the calling thread's namespace.
func listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: watched}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}
