package cli

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestNetwork checks what a pod can reach, and from where it can be reached, with real VMs: as root, as an ordinary
// user, and as a user who cannot create networks.
func TestNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	t.Parallel()
	for _, tc := range []struct {
		name   string
		prefix []string
		tun    bool
		turn   [2]int // and in how many days
		test   func(t *testing.T)
	}{
		{"root", nil, true, [2]int{0, 2}, testFullNetwork},
		{"ordinary", ordinary, true, [2]int{1, 2}, testFullNetwork},
		{"without tun", ordinary, false, [2]int{0, 1}, testLesserNetwork},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), testturn.In(tc.turn[0], tc.turn[1], func(t *testing.T) {
			if os.Getenv(inside) == "" {
				if os.Geteuid() != 0 {
					t.Skip("makes network namespaces for the host and the outside, which only root may")
				}
				enterWorld(t, tc.prefix, tc.tun)
				return
			}
			tc.test(t)
		}))
	}
}

const netPod = `apiVersion: v1
kind: Pod
metadata: {name: net}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: localhost/busybox:test
    command: [sh, -c, "mkdir /www && echo page > /www/index.html && exec httpd -f -p 80 -h /www"]
`

// reached returns the pod's answers from URLs, all requested at once. Empty means no answer. (wget's own -T crashes
// Debian's static busybox.)
func (u *user) reached(urls ...string) map[string]string {
	u.t.Helper()
	script := ""
	for i, url := range urls {
		script += fmt.Sprintf("{ got=$(timeout 8 wget -q -O - %s); echo \"%d $got\"; } & ", url, i)
	}
	got := map[string]string{}
	for line := range strings.Lines(u.must("", "exec", "net", "--", "sh", "-c", "{ "+script+"wait; } 2>/dev/null")) {
		number, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if i, err := strconv.Atoi(number); err == nil && i < len(urls) {
			got[urls[i]] = text
		}
	}
	if len(got) != len(urls) {
		u.t.Errorf("asked %v, got %v", urls, got)
	}
	return got
}

// hosts serves pages on the host's loopback and on its own address.
func hosts(t *testing.T) (loopback, own int) {
	t.Helper()
	var ports []int
	for _, address := range []string{"127.0.0.1:0", hostIP + ":0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: page("the host's")}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { s.Close() })
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports[0], ports[1]
}

func testFullNetwork(t *testing.T) {
	u := newUser(t, nil)
	u.loadBusybox()
	loopback, _ := hosts(t)
	port := freePort(t)
	_, stderr, code := u.run(netPod, "run", "-d", "--quiet", "-p", fmt.Sprintf("%d:80", port), "-")
	if code != 0 || stderr != "" {
		t.Fatalf("run: exit code %d, %s", code, stderr)
	}
	outside, name, gateway := "http://"+outsideIP+"/", "http://server.example/", fmt.Sprintf("http://10.0.2.2:%d/", loopback)
	want := map[string]string{
		outside: "outside", name: "outside",
		// The host's loopback by the gateway, the name server of the user network, its own address, the host's
		// address.
		gateway: "", fmt.Sprintf("http://10.0.2.3:%d/", loopback): "",
		fmt.Sprintf("http://127.0.0.1:%d/", loopback): "", fmt.Sprintf("http://%s:%d/", hostIP, loopback): "",
	}
	if diff := cmp.Diff(want, u.reached(slices.Collect(maps.Keys(want))...)); diff != "" {
		t.Error(diff)
	}
	if got, err := fetchPage(port); err != nil || got != "page\n" {
		t.Errorf("the published port: %q, %v", got, err)
	}
	if out := u.must("", "inspect", "net"); !strings.Contains(out, "network user;") {
		t.Errorf("inspect does not show the network: %s", out)
	}
	u.must("", "rm", "-f", "net")
	// With a namespace, the permission changes nothing.
	_, stderr, code = u.run(netPod, "run", "-d", "--quiet", "--allow-host-loopback", "-")
	if code != 0 || stderr != "" {
		t.Errorf("run --allow-host-loopback: exit code %d, %s", code, stderr)
	}
	if diff := cmp.Diff(map[string]string{gateway: "", outside: "outside"}, u.reached(gateway, outside)); diff != "" {
		t.Errorf("--allow-host-loopback where there is a namespace: %s", diff)
	}
	u.must("", "rm", "-f", "net")
	// Without any network, ports are still published, here at a free one.
	_, stderr, code = u.run(netPod, "run", "-d", "--quiet", "--network", "none", "-p", "0:80", "-")
	_, address, told := strings.Cut(strings.TrimSpace(stderr), "port 80 of the pod is published at 127.0.0.1:")
	if chosen, err := strconv.Atoi(address); code != 0 || !told || err != nil {
		t.Errorf("run -p 0:80: exit code %d, %q", code, stderr)
	} else if got, err := fetchPage(chosen); err != nil || got != "page\n" {
		t.Errorf("the port that was chosen: %q, %v", got, err)
	}
	if out := u.must("", "ps", "-o", "wide"); !told || !strings.Contains(out, address+"->80") {
		t.Errorf("ps -o wide does not show the port that was chosen, %s: %s", address, out)
	}
	if diff := cmp.Diff(map[string]string{gateway: "", outside: ""}, u.reached(gateway, outside)); diff != "" {
		t.Errorf("no network: %s", diff)
	}
	u.must("", "rm", "-f", "net")
}

// testLesserNetwork: a user cannot create networks. Either nothing leaves the pod, and the command says so, or the
// requested access is open.
func testLesserNetwork(t *testing.T) {
	u := newUser(t, nil)
	u.loadBusybox()
	loopback, own := hosts(t)
	port := freePort(t)
	gateway := fmt.Sprintf("http://10.0.2.2:%d/", loopback)
	for _, tc := range []struct {
		flag, notice, outside, loopback string
	}{
		{"--quiet", "no traffic leaves the pod", "", ""},
		{"--allow-host-loopback", "the pod can reach the host's loopback, as requested", "outside", "the host's"},
		{"--quiet", "no traffic leaves the pod", "", ""}, // no VM of the other kind is used
	} {
		_, stderr, code := u.run(netPod, "run", "-d", tc.flag, "-p", fmt.Sprintf("%d:80", port), "-")
		if code != 0 || !strings.Contains(stderr, tc.notice) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q", tc.flag, code, stderr)
		}
		want := map[string]string{
			"http://" + outsideIP + "/": tc.outside, gateway: tc.loopback, fmt.Sprintf("http://%s:%d/", hostIP, own): tc.loopback,
		}
		if diff := cmp.Diff(want, u.reached(slices.Collect(maps.Keys(want))...)); diff != "" {
			t.Errorf("%s: %s", tc.flag, diff)
		}
		if got, err := fetchPage(port); err != nil || got != "page\n" {
			t.Errorf("%s: the published port: %q, %v", tc.flag, got, err)
		}
		u.must("", "rm", "-f", "net")
	}
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
