// Command escape confines itself like bulkhead-convert and prints the results of its attempts to escape, one per line.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/image/worker"
)

// main takes a file, the address of a listener, and the process to kill. With one more argument it takes more memory
// than it may. It inherits a file that it may write.
func main() {
	path, address := os.Args[1], os.Args[2]
	victim, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	inherited := os.NewFile(3, "inherited")
	fmt.Println("confine:", worker.Confine(1<<20))
	if len(os.Args) > 4 {
		fmt.Println(allocate(3 << 30))
		return
	}
	_, err = inherited.WriteAt([]byte("x"), 100)
	fmt.Println("may write what it inherits:", err)
	fmt.Println("may hold it at a length:", inherited.Truncate(1000))
	fmt.Println("may allocate:", allocate(200<<20))
	done := make(chan struct{})
	go func() { runtime.LockOSThread(); close(done) }()
	<-done
	fmt.Println("may make threads: <nil>")

	hole := unix.Fallocate(3, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
	if errors.Is(hole, unix.EOPNOTSUPP) {
		hole = nil
	}
	fmt.Println("may give room back:", hole)

	fmt.Println("room beyond the limit:", unix.Fallocate(3, unix.FALLOC_FL_KEEP_SIZE, 0, 2<<20))
	fmt.Println("room:", unix.Fallocate(3, 0, 0, 4096))
	fmt.Println("map what it inherits:", mapped(3, 1000, unix.MAP_SHARED))
	fmt.Println("map what it inherits, checked:", mapped(3, 1000, unix.MAP_SHARED_VALIDATE))
	fmt.Println("map shared memory:", mapped(-1, 1<<20, unix.MAP_SHARED|unix.MAP_ANONYMOUS))
	fmt.Println("map a stack:", mapped(-1, 1<<20, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_GROWSDOWN))
	fmt.Println("map without end:", mapped(-1, 1<<40, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE))
	_, err = inherited.WriteAt([]byte("x"), 1<<20)
	fmt.Println("file beyond the limit:", err)
	_, err = os.ReadFile(path)
	fmt.Println("read:", err)
	fmt.Println("create:", os.WriteFile(path+".new", nil, 0o600))
	fmt.Println("truncate:", os.Truncate(path, 0))
	fmt.Println("chmod:", os.Chmod(path, 0))
	fmt.Println("remove:", os.Remove(path))
	_, err = os.Stat(path)
	fmt.Println("stat:", err)
	_, err = os.Open("/proc/self/fd/3")
	fmt.Println("open again:", err)
	_, err = net.Dial("tcp", address)
	fmt.Println("connect:", err)
	for _, family := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_NETLINK} {
		_, err = unix.Socket(family, unix.SOCK_DGRAM, 0)
		fmt.Printf("socket of family %d: %v\n", family, err)
	}
	fmt.Println("exec:", exec.Command("/bin/true").Run())
	fmt.Println("exec in place:", syscall.Exec("/bin/true", nil, nil))
	fmt.Println("kill:", unix.Kill(victim, unix.SIGKILL))
	fmt.Println("kill a thread:", unix.Tgkill(victim, victim, unix.SIGKILL))
	fmt.Println("limits of others:", unix.Prlimit(victim, unix.RLIMIT_CPU, &unix.Rlimit{}, nil))
	fmt.Println("trace:", unix.PtraceAttach(victim))
	fmt.Println("user again:", syscall.Setuid(0))
	fmt.Println("unshare:", unix.Unshare(unix.CLONE_NEWUSER))
	fmt.Println("mount:", unix.Mount("none", "/", "tmpfs", 0, ""))
	_, err = unix.MemfdCreate("more", 0)
	fmt.Println("memory outside of the limit:", err)
	fmt.Println("attributes:", unix.Fsetxattr(3, "user.x", []byte("y"), 0))
	fmt.Println("mode of what it inherits:", unix.Fchmod(3, 0o777))
	_, _, errno := unix.RawSyscall(unix.SYS_FORK, 0, 0, 0)
	if errno == 0 {
		os.Exit(0)
	}
	fmt.Println("fork:", errno)
	fmt.Println("end: <nil>")
	_, _ = os.NewFile(0, "input").Read(make([]byte, 1)) // until the test has inspected this process
}

func mapped(fd, length, flags int) error {
	_, err := unix.Mmap(fd, 0, length, unix.PROT_READ, flags)
	return err
}

func allocate(n int) error {
	b := bytes.Repeat([]byte("x"), n)
	if strings.Count(string(b[:10]), "x") != 10 {
		return fmt.Errorf("not what was written")
	}
	return nil
}
