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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/testnet"
)

// The tests of the shared namespace run twice, as root and as an ordinary
// user, in a world of their own, in whose outside a server stands.
const (
	inside   = "BULKHEAD_TEST_WORLD"
	hostIP   = "10.91.0.1"
	serverIP = "10.91.0.2"
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
	fmt.Println("serving")
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		fmt.Fprint(c, "hello")
		c.Close()
	}
}

func TestUserNetwork(t *testing.T) {
	for _, who := range []string{"root", "ordinary"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			if os.Getenv(inside) == "" {
				enterWorld(t, who)
				return
			}
			testUser(t)
		})
	}
}

// enterWorld runs this very test in the host of a world.
func enterWorld(t *testing.T, who string) {
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), inside+"=serve")
	args := testnet.New(t, hostIP, serverIP, server).Enter()

	home := t.TempDir()
	for dir := home; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if who != "root" {
		// As udev makes it: everybody may open the tun device.
		tun := filepath.Join(home, "tun")
		testnet.Run(t, "mknod", "-m", "666", tun, "c", "10", "200")
		if err := os.Chown(home, 1234, 1234); err != nil {
			t.Fatal(err)
		}
		args = append(args, "unshare", "--mount", "sh", "-c", `mount --bind "$1" /dev/net/tun && shift && exec "$@"`, "sh", tun,
			"setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
	}
	binary := filepath.Join(home, "network.test")
	testnet.Run(t, "cp", os.Args[0], binary)
	testnet.Run(t, "chmod", "755", binary)
	cmd := exec.Command(args[0], append(args[1:], binary, "-test.run=^TestUserNetwork$/^"+who+"$", "-test.v", "-test.timeout=50s")...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), inside+"=test", "HOME="+home, "TMPDIR="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func testUser(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", "0.0.0.0:8088") // the host's own service
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	u := NewUser(ctx, dir, false)
	if kind, reason := u.Kind(); kind != KindUser || reason != "" {
		t.Fatalf("kind %s, reason %q", kind, reason)
	}
	a, err := u.Attach(ctx, Request{ID: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, address, port string
		want                bool
	}{
		{"the outside answers", serverIP, "80", true},
		{"the host's loopback does not", "127.0.0.1", "8088", false},
		{"nor through the namespace's own address", hostIP, "8088", false},
		{"nor through the gateway", "10.0.2.2", "8088", false},
	} {
		out, err := fetch(a, tc.address, tc.port)
		if got := err == nil && out == "hello"; got != tc.want {
			t.Errorf("%s: got %v (%q, %v)", tc.name, got, out, err)
		}
	}

	// Another engine finds the same namespace, and a dead one is replaced.
	other := NewUser(ctx, dir, false)
	first, err := u.ns.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []procid.ID{first.Holder, first.Pasta} {
		// pasta lets only root look.
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id.PID)); err == nil && strings.Contains(string(env), inside) {
			t.Errorf("process %d has the engine's environment", id.PID)
		} else if err != nil && os.Geteuid() == 0 {
			t.Error(err)
		}
	}
	if again, err := other.ns.ensure(ctx); err != nil || again != first {
		t.Errorf("a second engine got %v, %v, want %v", again, err, first)
	}
	if err := first.Pasta.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := first.Pasta.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if a, err = u.Attach(ctx, Request{ID: "pod"}); err != nil {
		t.Fatal(err)
	}
	if out, err := fetch(a, serverIP, "80"); err != nil || out != "hello" {
		t.Errorf("after pasta's death: %q, %v", out, err)
	}
	last, err := u.ns.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Release(ctx); err != nil {
		t.Fatal(err)
	}
	// What an engine has made that was killed meanwhile the next one ends.
	half, err := create(ctx, dir, func(r record) error {
		if r.Pasta.PID != 0 {
			return nil
		}
		return u.ns.keep(r)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half.PastaDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", half.PastaDir, err)
	}
	for _, id := range []procid.ID{first.Holder, last.Holder, last.Pasta, half.Holder, half.Pasta} {
		if id.Alive() {
			t.Errorf("process %d is left", id.PID)
		}
	}
	if err := u.Release(ctx); err != nil {
		t.Errorf("a second release: %v", err)
	}
}

// fetch reads what a server says to a process in the pod's network.
func fetch(a Attachment, address, port string) (string, error) {
	cmd := exec.Command("bash", "-c", `exec 3<>/dev/tcp/$1/$2 && timeout 2 cat <&3`, "bash", address, port)
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
	timer := time.AfterFunc(3*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, readErr := io.ReadAll(r)
	if err := cmd.Wait(); err != nil {
		return "", err
	}
	return string(out), readErr
}
