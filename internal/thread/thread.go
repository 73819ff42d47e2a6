// Package thread runs functions on threads of their own. A thread can enter namespaces and groups that the rest of the
// process must not be in.
package thread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs f on a thread that ends with f. It is never the process's first thread, which stands for the process in /proc
// and does not end.
func Do(f func() error) error {
	result := make(chan error, 1)
	go do(f, result)
	return <-result
}

func do(f func() error, result chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		result <- f() // never unlocked, so the thread ends with the goroutine
		return
	}
	// Hold the first thread, so that the next goroutine runs on another one.
	inner := make(chan error, 1)
	go do(f, inner)
	result <- <-inner
	runtime.UnlockOSThread()
}
