// Command child is started by confine.Start in QEMU's place, and prints what it can do, one line each.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/confine/testdata/attack"
)

// main's arguments are the pod's directory, a unix socket in it, an abstract one, and a readable file. Descriptor 3 is
// a listening unix socket with a waiting connection, 4 a file open for writing. It attacks its parent process.
func main() {
	dir, path, abstract, readable := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	l, err := net.FileListener(os.NewFile(3, "listener"))
	var conn net.Conn
	if err == nil {
		conn, err = l.Accept()
	}
	if err == nil {
		_, err = conn.Write([]byte("hello"))
	}
	fmt.Println("inherited socket:", err)
	file := os.NewFile(4, "file")
	_, err = file.Write([]byte("hello"))
	fmt.Println("inherited file:", err)
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	fmt.Println("internet socket:", err)
	_, err = os.ReadFile(readable)
	fmt.Println("read:", err)

	_, err = net.Dial("unix", path)
	fmt.Println("connect:", err)
	_, err = net.Dial("unix", abstract)
	fmt.Println("connect to an abstract socket:", err)
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	fmt.Println("socket pair:", err)
	_, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)
	fmt.Println("netlink socket:", err)
	fmt.Println("write:", os.WriteFile(dir+"/new", nil, 0o600))
	fmt.Println("remove:", os.Remove(path))
	fmt.Println("rename:", os.Rename(path, path+"2"))
	fmt.Println("link:", os.Symlink("/etc", dir+"/link"))
	_, err = os.ReadDir(dir)
	fmt.Println("list:", err)
	watch, err := unix.InotifyInit1(0)
	if err == nil {
		_, err = unix.InotifyAddWatch(watch, dir, unix.IN_ALL_EVENTS)
	}
	fmt.Println("watch:", err)
	attack.Print(attack.Files(readable)...)
	attack.Print(attack.Descriptors(int(file.Fd()))...)
	attack.Print(attack.Processes(os.Getppid())...)
	attack.Print(attack.Signals(os.Getppid())...)
	namespaced := exec.Command("/bin/true")
	namespaced.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	fmt.Println("user namespace:", namespaced.Run())
	fmt.Println("end: <nil>")
}
