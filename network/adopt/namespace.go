package adopt

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/thread"
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
