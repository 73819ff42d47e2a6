package worker

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/confine"
)

const (
	// softMemory is where the collector starts to work harder. Honest images, and all within layer.DefaultLimits, take
	// less.
	softMemory = 1 << 30
	// maxMemory is the limit that ends the process.
	maxMemory = 2 << 30
	// maxAddresses bounds its mappings, and so its page tables: Go reserves far more than it uses.
	maxAddresses = 8 << 30
	// firstUser plus the process's id is a user that no other process has: no process id reaches 2^22, and the sum is
	// below 2^31.
	firstUser = 2_140_000_000
)

// calls are the system calls that Go's runtime needs, and those on open files. None opens a file, creates a socket or a
// process, or names another process.
var calls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_LSEEK, unix.SYS_FSTAT,
	unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_SYNC_FILE_RANGE, unix.SYS_CLOSE,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
}

// Confine removes all rights of this process except its memory, which it bounds, and its open files, which may grow to
// limit bytes. The process is killed when its parent ends; the parent must have requested that too (Pdeathsig). It is
// for a program without cgo.
func Confine(limit int64) error {
	parent := os.Getppid()
	// If memory is short, this process is killed first.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	debug.SetMemoryLimit(softMemory)
	signal.Ignore(unix.SIGXFSZ) // a write fails instead
	for _, l := range []struct {
		resource int
		most     uint64
	}{{unix.RLIMIT_DATA, maxMemory}, {unix.RLIMIT_AS, maxAddresses}, {unix.RLIMIT_FSIZE, uint64(max(0, limit))}, {unix.RLIMIT_CORE, 0}} {
		if err := lower(l.resource, l.most); err != nil {
			return err
		}
	}
	if err := becomeNobody(); err != nil {
		return err
	}
	if err := endWith(parent); err != nil {
		return err
	}
	// Without Landlock in the kernel only the list of calls protects files.
	if _, err := confine.Apply(confine.Policy{}); err != nil {
		return fmt.Errorf("confine the converter: %w", err)
	}
	return confine.Only(calls)
}

func lower(resource int, most uint64) error {
	var l unix.Rlimit
	err := unix.Getrlimit(resource, &l)
	if err == nil {
		l.Max = min(l.Max, most)
		l.Cur = min(l.Cur, l.Max)
		err = unix.Setrlimit(resource, &l)
	}
	if err != nil {
		return fmt.Errorf("limit %d to %d: %w", resource, most, err)
	}
	return nil
}

// endWith asks the kernel to kill this process when its parent ends. A change of user cancels the parent's own request.
func endWith(parent int) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("request a kill at the parent's end: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the parent has ended")
	}
	return nil
}

// becomeNobody gives the process another user than root. In a user namespace without that number it keeps its user,
// which is root only there: Confine drops its capabilities.
func becomeNobody() error {
	if os.Geteuid() != 0 {
		return nil
	}
	user := firstUser + os.Getpid()
	err := syscall.Setresgid(user, user, user)
	if err == nil {
		err = syscall.Setgroups(nil)
	}
	if err == nil {
		err = syscall.Setresuid(user, user, user)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) { // the error for a number that the namespace lacks
		return fmt.Errorf("become user %d: %w", user, err)
	}
	return nil
}
