// Command refused confines itself and a program that it starts, while one system call fails, and prints the results,
// one line each. If a program "shim" lies beside it, it becomes that one instead.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// main's arguments are the number of the call and of its error.
func main() {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	shim := filepath.Join(filepath.Dir(self), "shim")
	if _, err := os.Stat(shim); err == nil {
		refuse(unix.SYS_SECCOMP, int(unix.EPERM))
		panic(unix.Exec(shim, os.Args, os.Environ()))
	}
	refuse(number(os.Args[1]), number(os.Args[2]))
	policy := confine.Policy{Read: []string{self}, Write: []string{"/dev/null"}}
	missing, err := confine.Apply(policy)
	fmt.Println("apply:", err)
	fmt.Println("missing:", missing)
	cmd := exec.Command(self)
	_, err = confine.Start(cmd, policy)
	fmt.Println("start:", err)
	fmt.Println("started:", cmd.Process != nil)
	fmt.Println("seal:", confine.Seal(os.Getpid()))
	fmt.Println("none:", errors.Is(confine.Landlock(), confine.ErrNone))
}

func number(arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil {
		panic(err)
	}
	return n
}

// refuse makes a system call fail, on every thread and after an exec.
func refuse(number, errno int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(number), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		panic(errno)
	}
	const all = unix.SECCOMP_FILTER_FLAG_TSYNC
	if _, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, all, uintptr(unsafe.Pointer(&program))); failed != 0 {
		panic(failed)
	}
}
