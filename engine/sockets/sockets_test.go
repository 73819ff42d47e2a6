package sockets

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
)

// insideFlag makes the test's program serve a namespace.
const insideFlag = "BULKHEAD_TEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(insideFlag) != "" {
		inside.Serve(os.NewFile(3, "serve"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// namespace returns a new network namespace, as one process of it serves it.
func namespace(t *testing.T, setup ...string) Namespace {
	t.Helper()
	serve, clients, err := inside.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer serve.Close()
	defer clients.Close()
	cmd := exec.Command("unshare", "--net", "/proc/self/exe")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[2] = program
	cmd.Env = append(os.Environ(), insideFlag+"=1")
	cmd.ExtraFiles = []*os.File{serve, clients}
	id := testproc.Start(t, cmd)
	n := Of(network.Held{Holder: id, FD: 4}, &sync.Mutex{})
	for deadline := time.Now().Add(testdeadline.For(20 * time.Second)); !ready(id); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process does not enter a namespace")
		}
	}
	for _, command := range append([]string{"ip link set lo up"}, setup...) {
		args := append([]string{"--net", "--target", strconv.Itoa(id.PID)}, strings.Fields(command)...)
		if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	return n
}

// ready reports whether the process runs the test's program, in its own namespace.
func ready(id procid.ID) bool {
	return len(procid.Args(id.PID)) == 1
}

func listen(t *testing.T, n Namespace, p network.Port) network.Listener {
	t.Helper()
	l, err := n.Listen(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestTCP checks that clients in the namespace reach a listener of this process, by IPv4 and IPv6.
func TestTCP(t *testing.T) {
	n := namespace(t)
	l := listen(t, n, network.Port{HostIP: "::", HostPort: 80})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "hello")
			conn.Close()
		}
	}()
	for _, to := range []string{"127.0.0.1:80", "[::1]:80"} {
		conn, err := n.Dial(t.Context(), netip.MustParseAddrPort(to), false)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
			t.Errorf("%s answers %q, %v", to, got, err)
		}
	}
	if _, err := n.Listen(t.Context(), network.Port{HostIP: "::", HostPort: 80}); !errors.Is(err, network.ErrPortInUse) {
		t.Errorf("listen twice: got %v, want %v", err, network.ErrPortInUse)
	}
	listen(t, n, network.Port{HostIP: "127.0.0.1", HostPort: 81})
	if _, err := n.Dial(t.Context(), netip.MustParseAddrPort("[::1]:81"), false); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("another address of the loopback: got %v, want %v", err, unix.ECONNREFUSED)
	}
}

// TestUDP checks a UDP port of the namespace, without IPv6 there.
func TestUDP(t *testing.T) {
	n := namespace(t, "sysctl -q -w net.ipv6.conf.all.disable_ipv6=1")
	l := listen(t, n, network.Port{HostIP: "::", HostPort: 53, Protocol: "udp"})
	if err := l.UDP.SetDeadline(time.Now().Add(testdeadline.For(10 * time.Second))); err != nil {
		t.Fatal(err)
	}
	conn, err := n.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.11:53"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "question"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	count, from, err := l.UDP.ReadFrom(buf)
	if err != nil || string(buf[:count]) != "question" {
		t.Errorf("got %q from %v, %v", buf[:count], from, err)
	}
}

// TestGone checks the error of a process that has ended.
func TestGone(t *testing.T) {
	id, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	id.Start++
	n := Of(network.Held{Holder: id, FD: 4}, &sync.Mutex{})
	if _, err := n.Listen(t.Context(), network.Port{HostIP: "::"}); !errors.Is(err, procid.ErrGone) {
		t.Errorf("listen: got %v, want %v", err, procid.ErrGone)
	}
	if _, err := n.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:1"), true); !errors.Is(err, procid.ErrGone) {
		t.Errorf("dial: got %v, want %v", err, procid.ErrGone)
	}
	if _, err := n.Listen(t.Context(), network.Port{HostIP: "nowhere"}); err == nil {
		t.Error("listen on a wrong address: no error")
	}
}
