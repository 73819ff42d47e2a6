package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/retry"
)

// The pause after a failed refresh. It is also the first pause between attempts to listen again; mostWatchRetry is the
// longest.
const (
	watchRetry     = time.Second
	mostWatchRetry = time.Minute
)

// watcher calls a function whenever an IPv4 address of this host is added or removed. If its socket fails, it opens
// another one.
type watcher struct {
	open    func() (*os.File, error) // returns a file that is readable at each change
	refresh func(context.Context) error
	retry   time.Duration
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// watch starts a watcher: it sees every change after watch returns. stop ends it.
func watch(refresh func(context.Context) error) (*watcher, error) {
	w := &watcher{open: listenAddresses, refresh: refresh, retry: watchRetry}
	if err := w.start(); err != nil {
		return nil, err
	}
	return w, nil
}

// listenAddresses returns a socket that receives the kernel's messages on addresses.
func listenAddresses() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch the host's addresses: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV4_IFADDR}); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the host's addresses: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

func (w *watcher) start() error {
	socket, err := w.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.done.Go(func() {
		for socket != nil {
			w.follow(ctx, socket)
			socket = w.reopen(ctx)
		}
	})
	return nil
}

// follow refreshes at each change until the socket fails, and closes it.
func (w *watcher) follow(ctx context.Context, socket *os.File) {
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })()
	// The content of a message does not matter: all addresses are read again.
	message := make([]byte, 4096)
	for {
		if _, err := socket.Read(message); err != nil && !errors.Is(err, unix.ENOBUFS) {
			if ctx.Err() == nil {
				slog.Error("cannot watch the host's addresses; opening another socket", "error", err)
			}
			return
		}
		w.update(ctx)
	}
}

// update refreshes until that succeeds, or ctx ends.
func (w *watcher) update(ctx context.Context) {
	_ = retry.Pauses{First: w.retry, Last: w.retry}.Until(ctx, nil, func() error { return w.refresh(ctx) }, func(err error) {
		slog.Warn("cannot update the pods' network after a change of the host's addresses; trying again", "error", err)
	})
}

// reopen opens another socket, and refreshes for changes that were missed. It returns nil if ctx has ended.
func (w *watcher) reopen(ctx context.Context) *os.File {
	pauses := retry.Pauses{First: w.retry, Last: mostWatchRetry}
	for retry.Sleep(ctx, pauses.Next(), nil) {
		socket, err := w.open()
		if err == nil {
			w.update(ctx)
			return socket
		}
		slog.Error("cannot watch the host's addresses; trying again", "error", err)
	}
	return nil
}

// stop ends w, which may be nil, and waits for its end.
func (w *watcher) stop() {
	if w == nil {
		return
	}
	w.cancel()
	w.done.Wait()
}
