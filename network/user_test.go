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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/testnet"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// The tests of the shared namespace run twice, as root and as an ordinary
// user, in a world of their own, in whose outside a server stands.
const (
	inside   = "BULKHEAD_TEST_WORLD"
	hostIP   = "10.91.0.1"
	serverIP = "10.91.0.2"

	bridgeIP   = "172.29.0.1"      // another one of the host's
	uniqueIP   = "fd91::1"         // its unique local address
	linkIP     = "fe80::91"        // and its link-local one
	laterIP    = "172.28.0.1"      // one that the host gets, and that then is the outside's
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
	answer(l)
}

// answer says "hello" to who connects, until l is closed.
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
	world := testnet.New(t, hostIP, serverIP, server)
	args := world.Enter()
	for _, line := range []string{
		"link add docker0 type veth peer name docker1", "addr add " + bridgeIP + "/24 dev docker0", "link set docker0 up", "link set docker1 up",
		"addr add " + uniqueIP + "/64 dev tohost0 nodad", "addr add " + linkIP + "/64 dev tohost0 nodad", "route add " + metadataIP + " via " + serverIP,
	} {
		testnet.Run(t, append(slices.Clone(args), append([]string{"ip"}, strings.Fields(line)...)...)...)
	}
	// The host's resolver is on its loopback, for any user to serve.
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
	conf := filepath.Join(home, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+stubIP+"\nnameserver "+metadataIP+"\nsearch own.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args = append(args, "unshare", "--mount", "sh", "-c", `mount --bind "$1" /etc/resolv.conf && shift && exec "$@"`, "sh", conf)
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
	hostCommands(t, world, filepath.Join(home, "commands"))
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

// hostCommands runs what anybody writes to a FIFO as commands of ip in the host's
// namespace: the test of an ordinary user cannot change its own host.
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// command has ip run in the host's namespace.
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

// until waits for a condition that another process brings about.
func until(ctx context.Context, t *testing.T, what string, met func() bool) {
	t.Helper()
	for !met() {
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, ctx.Err())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// reaches tells whether a service answers a process in the pod's network.
func reaches(a Attachment, address, port string) bool {
	out, err := fetch(a, address, port)
	return err == nil && out == "hello"
}

// resolves: where the host's name servers are out of reach, pods get the answers of
// the host's resolver, and nothing else of that address.
func resolves(t *testing.T, a Attachment) {
	if diff := cmp.Diff(DNS{Servers: []string{hostDNS}, Searches: []string{"own.example"}}, a.DNS); diff != "" {
		t.Error(diff)
	}
	stub, err := net.ListenPacket("udp", stubIP+":53")
	if err != nil {
		t.Fatal(err)
	}
	defer stub.Close()
	go func() {
		question := make([]byte, 512)
		for {
			_, from, err := stub.ReadFrom(question)
			if err != nil {
				return
			}
			_, _ = stub.WriteTo([]byte("hello"), from)
		}
	}()
	out, err := run(a, "timeout", "5", "bash", "-c", `exec 3<>/dev/udp/$1/53 && echo question >&3 && head -c 5 <&3`, "bash", hostDNS)
	if err != nil || out != "hello" {
		t.Errorf("the host's resolver: %q, %v", out, err)
	}
	if reaches(a, hostDNS, "8088") {
		t.Error("the resolver's address leads to the host's services")
	}
}

// ownUser: nobody's processes, of which others have some, cannot join the pods'
// network and listen to it.
func ownUser(ctx context.Context, t *testing.T, u *User) {
	r, err := u.ns.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []procid.ID{r.Holder, r.Pasta} {
		if !procid.RunsAs(id.PID, uids.Network) {
			t.Errorf("process %d is not of the network's own user", id.PID)
		}
	}
	for uid, want := range map[uint32]bool{65534: false, uids.First: false, uids.Network: true} {
		join := exec.Command("nsenter", "--target", strconv.Itoa(r.Holder.PID), "--user", "--net", "--preserve-credentials", "true")
		join.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := join.CombinedOutput(); (err == nil) != want {
			t.Errorf("user %d joins the network: %v, want %v: %s", uid, err == nil, want, out)
		}
	}
}

func testUser(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", ":8088") // the host's own service
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go answer(l)
	host := Attachment{Start: (*exec.Cmd).Start}
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
		{"nor another address of the host", bridgeIP, "8088", false},
		{"nor its unique local address", uniqueIP, "8088", false},
		{"nor its link-local address", linkIP + "%tohost0", "8088", false},
		{"nor link-local addresses of the outside", metadataIP, "80", false},
	} {
		if got := reaches(a, tc.address, tc.port); got != tc.want {
			t.Errorf("%s: got %v", tc.name, got)
		}
		if tc.address != "10.0.2.2" && !reaches(host, tc.address, tc.port) {
			t.Errorf("%s: the host itself cannot reach it, so that this shows nothing", tc.name)
		}
	}

	// Multicast would be heard by the host's services too.
	multicast := exec.Command("bash", "-c", "exec 3<>/dev/udp/224.0.0.251/5353")
	if err := a.Start(multicast); err != nil {
		t.Fatal(err)
	}
	if multicast.Wait() == nil {
		t.Error("multicast is not closed")
	}
	if os.Geteuid() == 0 {
		ownUser(ctx, t, u)
	}
	resolves(t, a)

	// An address that the host gets is closed to pods, and one that it gives up is
	// not closed for ever.
	command(t, "addr add "+laterIP+"/24 dev docker0")
	until(ctx, t, "the host reaches its new address", func() bool { return reaches(host, laterIP, "8088") })
	until(ctx, t, "a new address is closed", func() bool { return !reaches(a, laterIP, "8088") })
	command(t, "addr del "+laterIP+"/24 dev docker0")
	command(t, "route add "+laterIP+" via "+serverIP)
	until(ctx, t, "an address that went elsewhere is open", func() bool { return reaches(a, laterIP, "80") })

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
	if again, err := other.ns.ensure(ctx); err != nil || !cmp.Equal(again, first) {
		t.Errorf("a second engine got %v, %v, want %v", again, err, first)
	}
	for range 2 {
		other.Close()
	}
	if !first.alive() {
		t.Error("an engine that ends takes the namespace along")
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
	// So does a namespace of an earlier version.
	old := record{Holder: sleeper(t), Pasta: sleeper(t)}
	if err := atomicfile.WriteJSON(filepath.Join(dir, "netns.json"), old, 0o600, atomicfile.Volatile); err != nil {
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
	for _, id := range []procid.ID{first.Holder, last.Holder, last.Pasta, half.Holder, half.Pasta, old.Holder, old.Pasta} {
		if id.Alive() {
			t.Errorf("process %d is left", id.PID)
		}
	}
	if err := u.Release(ctx); err != nil {
		t.Errorf("a second release: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if f.Name() != "netns.lock" && f.Name() != "tun" {
			t.Errorf("%s is left", f.Name())
		}
	}
}

// sleeper is a process that does nothing.
func sleeper(t *testing.T) procid.ID {
	cmd := exec.Command("sleep", "infinity")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	id, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// fetch reads what a server says to a process in the pod's network.
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
