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
)

// watchRetry is the pause after a refresh that failed.
const watchRetry = time.Second

// watcher calls a function whenever an IPv4 address of this host comes or goes.
type watcher struct {
	socket *os.File
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// watch begins: a change after its return is seen. stop ends it.
func watch(refresh func(context.Context) error) (*watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch the host's addresses: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV4_IFADDR}); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the host's addresses: %w", err), unix.Close(fd))
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{socket: os.NewFile(uintptr(fd), "netlink"), cancel: cancel}
	w.done.Go(func() { w.run(ctx, refresh) })
	return w, nil
}

func (w *watcher) run(ctx context.Context, refresh func(context.Context) error) {
	// What a message says does not matter: all addresses are read again.
	message := make([]byte, 4096)
	for {
		if _, err := w.socket.Read(message); err != nil && !errors.Is(err, unix.ENOBUFS) {
			if ctx.Err() == nil {
				slog.Error("the host's addresses are no longer watched", "error", err)
			}
			return
		}
		for err := refresh(ctx); err != nil && ctx.Err() == nil; err = refresh(ctx) {
			slog.Warn("a change of the host's addresses is not known to the pods' network yet", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(watchRetry):
			}
		}
	}
}

// stop ends w, which may be nil, and waits for its end.
func (w *watcher) stop() {
	if w == nil {
		return
	}
	w.cancel()
	_ = w.socket.Close() // the read ends
	w.done.Wait()
}
