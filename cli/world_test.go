package cli

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testtemplate"
)

// The network world of a test has a web server and a name server on its outside. The test runs itself again in that
// world's host.
const (
	inside    = "BULKHEAD_TEST_WORLD" // "host" or "outside"
	worldHome = "BULKHEAD_TEST_HOME"  // the user's directory in it
	hostIP    = "10.92.0.1"
	outsideIP = "10.92.0.2"
)

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "outside" {
		if err := outside(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// outside serves a page, and a name server that resolves all names to itself.
func outside() error {
	l, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	names, err := net.ListenPacket("udp", ":53")
	if err != nil {
		return err
	}
	fmt.Println("serving")
	go func() {
		for b := make([]byte, 1500); ; {
			n, from, err := names.ReadFrom(b)
			if err != nil {
				return
			}
			if answer, err := answer(b[:n]); err == nil {
				_, _ = names.WriteTo(answer, from)
			}
		}
	}()
	return http.Serve(l, page("outside"))
}

func page(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

// answer answers a query for an A record. Other queries get no records.
func answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	for _, q := range m.Questions {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(outsideIP).To4())},
			})
		}
	}
	return m.Pack()
}

// enterWorld creates a world and runs the same test in it, as root or, with prefix, as another user. With tun, all
// users can open /dev/net/tun there, as with udev; otherwise only root can.
func enterWorld(t *testing.T, prefix []string, tun bool) {
	t.Helper()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), inside+"=outside")
	world := testnet.New(t, hostIP, outsideIP, server)

	home := shortDir(t, prefix)
	t.Cleanup(func() { endAll(t, home) }) // a test in it that times out cleans up nothing
	testtemplate.Share(t, home, rootsIn(home))
	testnet.Run(t, "cp", os.Args[0], home+"/cli.test")
	testnet.Run(t, "chmod", "a+rx", home+"/cli.test")
	mode := "600"
	if tun {
		mode = "666"
	}
	testnet.Run(t, "mknod", "-m", mode, home+"/tun", "c", "10", "200")
	if err := os.WriteFile(home+"/resolv.conf", []byte("nameserver "+outsideIP+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append(world.Enter(), append([]string{
		"unshare", "--mount", "sh", "-c",
		`mount --bind "$1/tun" /dev/net/tun && mount --bind "$1/resolv.conf" /etc/resolv.conf && shift && exec "$@"`, "sh", home,
	}, prefix...)...)
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	args = append(args, home+"/cli.test", "-test.run="+name, "-test.v", "-test.timeout=250s")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), inside+"=host", worldHome+"="+home)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

// endAll kills the remaining processes of the user with the directory home.
func endAll(t *testing.T, home string) {
	for _, p := range processes(home) {
		number, _, _ := strings.Cut(p, " ")
		if pid, err := strconv.Atoi(number); err == nil {
			t.Logf("killed: %s", p)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
