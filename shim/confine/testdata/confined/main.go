// Command confined confines itself and prints what it can still do, one line each.
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

// main's arguments are a writable directory, a file outside it, a file outside it that is passed open, the address of a
// listener, and a readable file. It attacks its parent process.
func main() {
	inside, outside, passed, address, readable := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	f, err := os.Open(passed)
	if err != nil {
		panic(err)
	}
	// Existing threads must be confined too.
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
	missing, err := confine.Apply(confine.Policy{
		Read: []string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", readable}, Unlisted: []string{"/proc"},
		Write: []string{inside, "/dev/null"}, ReadFiles: []*os.File{f}, NoTCP: true,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("walls:", missing)
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
	sealed(inside, address)
	fmt.Println("end: <nil>")
}

// sealed continues like a shim with open sockets and a running VM.
func sealed(inside, address string) {
	l, err := net.Listen("unix", inside+"/socket")
	if err != nil {
		panic(err)
	}
	before, err := net.Dial("unix", inside+"/socket")
	if err != nil {
		panic(err)
	}
	vm := exec.Command("/bin/cat")
	input, err := vm.StdinPipe()
	if err != nil {
		panic(err)
	}
	defer input.Close()
	policy := confine.Policy{
		Read:  []string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"},
		Write: []string{"/dev/null"},
	}
	if _, err := confine.Start(vm, policy); err != nil {
		panic(err)
	}
	results := make(chan error)
	seal, attempt := make(chan struct{}), func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }
	for range 4 { // existing threads
		go func() {
			runtime.LockOSThread()
			<-seal
			results <- attempt()
		}()
	}
	fmt.Println("seal:", confine.Seal(vm.Process.Pid))
	close(seal)
	for range 4 {
		fmt.Println("sealed thread makes a socket:", <-results)
	}
	conn, err := l.Accept()
	fmt.Println("sealed accepts:", err)
	_, err = before.Write([]byte("x"))
	fmt.Println("sealed writes to a connection of before:", err)
	conn.Close()
	_, err = net.Dial("unix", inside+"/socket")
	fmt.Println("sealed connects:", err)
	_, err = net.Dial("tcp", address)
	fmt.Println("sealed connects by TCP:", err)
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	fmt.Println("sealed makes a pair:", err)
	fmt.Println("sealed starts a program:", exec.Command("/bin/true").Run())
	for _, a := range attack.Signals(os.Getppid()) {
		fmt.Printf("sealed, %s: %v\n", a.What, a.Err)
	}
	pidfd, err := unix.PidfdOpen(vm.Process.Pid, 0)
	fmt.Println("sealed opens its VM:", err)
	fmt.Println("sealed kills its VM:", unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0))
	fmt.Println("sealed waits:", vm.Wait().Error() == "signal: killed")
}
