package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
)

// The tests of the shared namespace run twice, as root and as an ordinary user, in a world of their own with a server
// outside.
const (
	inside   = "BULKHEAD_TEST_WORLD"
	hostIP   = "10.91.0.1"
	serverIP = "10.91.0.2"

	bridgeIP   = "172.29.0.1"      // another address of the host
	uniqueIP   = "fd91::1"         // its unique local address
	linkIP     = "fe80::91"        // and its link-local one
	laterIP    = "172.28.0.1"      // an address that the host gets, and loses to the outside
	metadataIP = "169.254.169.254" // of the outside
	stubIP     = "127.0.0.53"      // the host's resolver
)

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "serve" {
		serve()
		return
	}
	os.Exit(m.Run())
}

// serve answers every connection to port 80 of any address with "hello".
func serve() {
	l, err := net.Listen("tcp", ":80")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	names, err := net.ListenPacket("udp", ":53")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go answerNames(names)
	answer(l)
}

// answerNames answers "hello" to each datagram, until c is closed.
func answerNames(c net.PacketConn) {
	question := make([]byte, 512)
	for {
		_, from, err := c.ReadFrom(question)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte("hello"), from)
	}
}

// ask sends a query to a name server from the pod's network.
func ask(a Attachment, server string) (string, error) {
	return run(a, "timeout", "5", "bash", "-c", `exec 3<>/dev/udp/$1/53 && echo question >&3 && head -c 5 <&3`, "bash", server)
}

// answer writes "hello" to each client, until l is closed.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(c, "hello")
		c.Close()
	}
}

// enterWorld runs the calling test in the host of a world.
func enterWorld(t *testing.T, who, resolvConf string) {
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), inside+"=serve")
	world := testnet.New(t, hostIP, serverIP, server)
	args := world.Enter()
	for _, line := range []string{
		"link add docker0 type veth peer name docker1", "addr add " + bridgeIP + "/24 dev docker0", "link set docker0 up", "link set docker1 up",
		"addr add " + uniqueIP + "/64 dev tohost0 nodad",
		"addr add " + linkIP + "/64 dev tohost0 nodad", "route add " + metadataIP + " via " + serverIP,
	} {
		testnet.Run(t, append(slices.Clone(args), append([]string{"ip"}, strings.Fields(line)...)...)...)
	}
	// The host's resolver is on its loopback. Any user may serve it.
	testnet.Run(t, append(slices.Clone(args), "sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start")...)
	for _, address := range []string{metadataIP, laterIP} {
		world.Outside(t, "addr", "add", address+"/32", "dev", "tonet0")
	}

	home := t.TempDir()
	for dir := home; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The state directory's file system forbids devices, as /run does.
	state := filepath.Join(home, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	testnet.Run(t, "mount", "-t", "tmpfs", "-o", "nodev,nosuid,noexec", "tmpfs", state)
	t.Cleanup(func() { testnet.Run(t, "umount", state) })
	conf := filepath.Join(home, "resolv.conf")
	if err := os.WriteFile(conf, []byte(resolvConf), 0o644); err != nil {
		t.Fatal(err)
	}
	args = append(args, "unshare", "--mount", "sh", "-c", `mount --bind "$1" /etc/resolv.conf && shift && exec "$@"`, "sh", conf)
	if who == "ordinary" {
		// Like udev's node: every user may open the tun device.
		tun := filepath.Join(home, "tun")
		testnet.Run(t, "mknod", "-m", "666", tun, "c", "10", "200")
		if err := errors.Join(os.Chown(home, 1234, 1234), os.Chown(state, 1234, 1234)); err != nil {
			t.Fatal(err)
		}
		args = append(args, "unshare", "--mount", "sh", "-c", `mount --bind "$1" /dev/net/tun && shift && exec "$@"`, "sh", tun,
			"setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
	}
	hostCommands(t, world, filepath.Join(home, "commands"))
	binary := filepath.Join(home, "network.test")
	testnet.Run(t, "cp", os.Args[0], binary)
	testnet.Run(t, "chmod", "755", binary)
	cmd := exec.Command(args[0], append(args[1:], binary, "-test.run=^TestUserNetwork$/^"+who+"$", "-test.v",
		"-test.timeout="+(4*testdeadline.For(50*time.Second)).String())...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), inside+"=test", "HOME="+home, "TMPDIR="+state)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// hostCommands runs lines of a FIFO as commands of ip in the host's namespace: the test of an ordinary user cannot
// change its own host.
func hostCommands(t *testing.T, world testnet.World, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	args := append(world.Enter(), "sh", "-c", `while read -r line; do ip $line; done <>"$1"`, "sh", path)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	testproc.Start(t, cmd)
}

// command runs ip in the host's namespace.
func command(t *testing.T, line string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(os.Getenv("HOME"), "commands"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		t.Fatal(err)
	}
}

// until waits for a condition that another process fulfils.
func until(ctx context.Context, t *testing.T, what string, met func() bool) {
	t.Helper()
	for !met() {
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, ctx.Err())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// fetch returns a server's answer to a process in the pod's network.
func fetch(a Attachment, address, port string) (string, error) {
	return run(a, "timeout", "2", "bash", "-c", `exec 3<>/dev/tcp/$1/$2 && cat <&3`, "bash", address, port)
}

// run runs a command in the pod's network and returns its output.
func run(a Attachment, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	cmd.Stdout = w
	err = a.Start(cmd)
	w.Close()
	if err != nil {
		return "", err
	}
	timer := time.AfterFunc(8*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, readErr := io.ReadAll(r)
	if err := cmd.Wait(); err != nil {
		return "", err
	}
	return string(out), readErr
}

// reaches reports whether a service answers a process in the pod's network.
func reaches(a Attachment, address, port string) bool {
	out, err := fetch(a, address, port)
	return err == nil && out == "hello"
}
