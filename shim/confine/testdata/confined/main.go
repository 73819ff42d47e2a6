// Command confined confines itself and tells what it can still do, a line each.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/confine/testdata/attack"
)

// main takes: a directory that may be written, a file outside it, a file
// outside it that is passed open, the address of a listener, a file that may be
// read. What it attacks is the process that started it.
func main() {
	inside, outside, passed, address, readable := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	f, err := os.Open(passed)
	if err != nil {
		panic(err)
	}
	// Threads that are there before must be confined too.
	var started, release sync.WaitGroup
	results := make([]error, 4)
	release.Add(1)
	var done sync.WaitGroup
	for i := range results {
		started.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			started.Done()
			release.Wait()
			_, results[i] = os.ReadFile(outside)
		})
	}
	started.Wait()
	r := confine.Apply(confine.Policy{
		Read:  []string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc", readable},
		Write: []string{inside, "/dev/null"}, ReadFiles: []*os.File{f}, NoTCP: true,
	})
	fmt.Println("walls:", r.Err())
	release.Done()
	done.Wait()
	for _, err := range results {
		fmt.Println("thread reads outside:", err)
	}
	_, err = os.ReadFile(outside)
	fmt.Println("read outside:", err)
	fmt.Println("write outside:", os.WriteFile(outside, nil, 0o600))
	fmt.Println("write inside:", os.WriteFile(inside+"/new", []byte("x"), 0o600))
	fmt.Println("rename inside:", os.Rename(inside+"/new", inside+"/newer"))
	_, err = os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	fmt.Println("read passed:", err)
	fmt.Println("exec:", exec.Command("/bin/true").Run())
	fmt.Println("exec reads outside:", exec.Command("/bin/cat", outside).Run())
	_, err = net.Dial("tcp", address)
	fmt.Println("connect:", err)
	fmt.Println("mount:", unix.Mount("none", inside, "tmpfs", 0, ""))
	fmt.Println("unshare:", unix.Unshare(unix.CLONE_NEWUSER))
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	fmt.Println("clone3:", errno)
	namespaced := exec.Command("/bin/true")
	namespaced.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	fmt.Println("user namespace:", namespaced.Run())
	fmt.Println("ptrace:", unix.PtraceAttach(os.Getppid()))
	attack.Print(attack.Files(readable)...)
	attack.Print(attack.Processes(os.Getppid())...)
	fmt.Println("end: <nil>")
}
