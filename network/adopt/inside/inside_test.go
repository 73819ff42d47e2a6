package inside

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/tap"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/thread"
)

func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }

// serve runs Serve in the test's namespace, and returns a client. ended is closed when Serve returns.
func serve(t *testing.T) (c *Client, clients *os.File, ended <-chan struct{}) {
	t.Helper()
	own, clients, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); Serve(own) }()
	t.Cleanup(func() {
		clients.Close()
		<-done
	})
	if c, err = NewClient(clients); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, clients, done
}

func ip(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", command, err, out)
	}
}

// TestSocket checks that a client in another network namespace gets sockets of this one, each its own.
func TestSocket(t *testing.T) {
	c, _, _ := serve(t)
	want, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for kind, socket := range map[Kind][2]int{
		TCP4: {unix.AF_INET, unix.SOCK_STREAM}, TCP6: {unix.AF_INET6, unix.SOCK_STREAM},
		UDP4: {unix.AF_INET, unix.SOCK_DGRAM}, UDP6: {unix.AF_INET6, unix.SOCK_DGRAM},
	} {
		for range 2 {
			err := thread.Do(func() error {
				if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
					return err
				}
				f, err := c.Socket(t.Context(), kind)
				if err != nil {
					return err
				}
				defer f.Close()
				domain, errDomain := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_DOMAIN)
				of, errType := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
				if errDomain != nil || errType != nil || domain != socket[0] || of != socket[1] {
					t.Errorf("kind %d: got family %d and type %d, want %v", kind, domain, of, socket)
				}
				ns, err := unix.IoctlRetInt(int(f.Fd()), unix.SIOCGSKNS)
				if err != nil {
					return err
				}
				defer unix.Close(ns)
				if got, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(ns)); err != nil || got != want {
					t.Errorf("kind %d: a socket of %s, %v, want %s", kind, got, err, want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if f, err := c.Socket(t.Context(), 99); !errors.Is(err, unix.EINVAL) || f != nil {
		t.Errorf("an unknown kind: got %v, want %v", err, unix.EINVAL)
	}
}

// TestAbandoned checks that an answer to a client that ended before is not taken for another one's.
func TestAbandoned(t *testing.T) {
	c, clients, ended := serve(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Socket(gone, TCP4); err == nil {
		t.Error("a request with a context that has ended: no error")
	}
	for _, request := range [][]byte{encode(7, TCP6, ""), encode(8, 99, ""), {1}, {}} {
		if _, err := clients.Write(request); err != nil {
			t.Fatal(err)
		}
	}
	<-ended // an empty message is the end
	if _, err := c.Socket(t.Context(), TCP4); err == nil {
		t.Error("a request after the end of Serve: no error")
	}
	c, clients, _ = serve(t)
	for _, request := range [][]byte{encode(7, TCP6, ""), encode(8, 99, ""), {1}} {
		if _, err := clients.Write(request); err != nil {
			t.Fatal(err)
		}
	}
	f, err := c.Socket(t.Context(), UDP4)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if kind, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_DGRAM {
		t.Errorf("the socket of another request: type %d, %v", kind, err)
	}
}

// TestWatch checks that the last program runs at a change.
func TestWatch(t *testing.T) {
	c, _, _ := serve(t)
	seen := filepath.Join(t.TempDir(), "seen")
	if err := unix.Mkfifo(seen, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"/no/program"}, {"/bin/sh", "-c", `ip -o link show watched0 >/dev/null && echo "$0 $ONE" "$1" >` + seen, "zero", ""},
	} {
		if err := c.Watch(t.Context(), []string{"PATH=" + os.Getenv("PATH"), "ONE=1"}, args); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(seen, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.SetDeadline(time.Now().Add(testdeadline.For(20 * time.Second))); err != nil {
		t.Fatal(err)
	}
	ip(t, "link add watched0 type veth peer name watched1")
	buf := make([]byte, 100)
	if n, err := f.Read(buf); err != nil || string(buf[:n]) != "zero 1 \n" {
		t.Errorf("the program wrote %q, %v", buf[:n], err)
	}
	ip(t, "link del watched0")
	for name, args := range map[string][]string{"none": nil, "a zero byte": {"a\x00b"}, "too long": {strings.Repeat("x", maxRequest)}} {
		if err := c.Watch(t.Context(), nil, args); err == nil {
			t.Errorf("watch with arguments of the kind %q: no error", name)
		}
	}
}

// TestTapsAreIgnored checks that the changes of a VM's own taps are not reported.
func TestTapsAreIgnored(t *testing.T) {
	err := thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		socket, err := Listen()
		if err != nil {
			return err
		}
		defer socket.Close()
		card, err := tap.Make(TapPrefix + "0")
		if err != nil {
			return err
		}
		defer card.Close()
		// Package adopt does so too.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+TapPrefix+"0/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		for _, command := range []string{"mtu 1400", "up", "down"} {
			ip(t, "link set "+TapPrefix+"0 "+command)
		}
		buf := make([]byte, 16<<10)
		count := 0
		for ; ; count++ {
			n, _, err := unix.Recvfrom(int(socket.Fd()), buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil || !ofTaps(buf[:n]) {
				t.Errorf("message %d is not of a tap: %v", count, err)
			}
		}
		if count == 0 {
			t.Error("no message of a tap")
		}
		ip(t, "link add eth0 type veth peer name peer0")
		if n, _, err := unix.Recvfrom(int(socket.Fd()), buf, unix.MSG_DONTWAIT); err != nil || ofTaps(buf[:n]) {
			t.Errorf("a message on another interface is taken for a tap's: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ofTaps(nil) || ofTaps([]byte("nonsense")) {
		t.Error("no message is taken for a tap's")
	}
}
