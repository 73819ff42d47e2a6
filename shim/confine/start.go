package confine

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Start starts cmd behind walls of its own, within those of this process: it
// has what p allows of what this process has, may signal nobody but itself,
// reaches no abstract socket, and makes sockets of p.Sockets' families only. So
// it connects to no unix socket, which Landlock cannot forbid; those that it
// inherits work. This process stays as it is. What is missing is as with Apply; on an
// error nothing has been started.
func Start(cmd *exec.Cmd, p Policy) (missing, err error) {
	// A child has the walls of the thread that forks it.
	onLostThread(func() {
		if missing, err = first(p, allScopes, thisThread); err != nil {
			return
		}
		if err = install(startFilter, p, 0); err != nil {
			err = fmt.Errorf("seccomp: %w", err)
			return
		}
		err = cmd.Start()
	})
	return missing, err
}

// onLostThread calls f on a thread that ends with it. It is never the first
// one: that would live on, and others judge a process by its first thread.
func onLostThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // locked, which ends the thread
		}
		onLostThread(f) // on another one, while this goroutine holds the first
		runtime.UnlockOSThread()
	}()
	<-done
}

func thisThread(number, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall6(number, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
