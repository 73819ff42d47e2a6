package adopt

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/thread"
	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
)

// Inside runs f in a network namespace, in a thread that ends with f.
func Inside(ns *os.File, f func() error) error {
	return thread.Do(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
		return f()
	})
}

// in runs f in a network namespace, or in the calling thread if ns is nil.
func in(ns *os.File, f func() error) error {
	if ns == nil {
		return f()
	}
	return Inside(ns, f)
}

// Watch reports changes of a network namespace's interfaces, addresses and routes; see inside.Changes. ns is nil for the
// calling thread's namespace. Watch sees every change after it returns.
func Watch(ctx context.Context, ns *os.File) (<-chan struct{}, error) {
	var socket *os.File
	err := in(ns, func() (err error) {
		socket, err = inside.Listen()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch the network namespace: %w", err)
	}
	return inside.Changes(ctx, socket), nil
}
