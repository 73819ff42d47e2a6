package confine

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Start starts cmd confined further than this process. It gets the subset of this process's rights that p allows. It
// may signal only itself, reach no abstract socket, and create sockets of p.Sockets' families only. So it cannot
// connect to unix sockets, which Landlock cannot forbid. Inherited sockets work. This process stays unchanged. missing
// is as in Apply. On an error nothing has been started.
func Start(cmd *exec.Cmd, p Policy) (missing, err error) {
	// A child inherits the confinement of the thread that forks it.
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

// onLostThread calls f on a thread that ends afterwards. It never uses the first thread, which would live on and is the
// one by which other programs judge the process.
func onLostThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // exiting while locked ends the thread
		}
		onLostThread(f) // on another thread, while this goroutine holds the first
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
