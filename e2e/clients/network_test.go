package clients

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// The host has the address outsideOf on a link to another network namespace, the outside, which has the address outside.
const (
	outside   = "192.0.2.2"
	outsideOf = "192.0.2.1"
)

// linkOutside creates the outside. The host's name server is there.
func linkOutside() error {
	_ = os.Remove("/etc/resolv.conf") // it may be a link
	if err := os.WriteFile("/etc/resolv.conf", []byte("nameserver "+outside+"\n"), 0o644); err != nil {
		return err
	}
	for step := range strings.Lines(`ip netns add outside
		ip link add outside0 type veth peer name host0 netns outside
		ip addr add 192.0.2.1/24 dev outside0
		ip link set outside0 up
		nsenter --net=/run/netns/outside ip addr add 192.0.2.2/24 dev host0
		nsenter --net=/run/netns/outside ip link set host0 up
		nsenter --net=/run/netns/outside ip link set lo up
		ip route add default via 192.0.2.2`) {
		words := strings.Fields(step)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.TrimSpace(step), err, out)
		}
	}
	return nil
}

// serveOutside runs the program echo in the outside as long as the host exists. The program is also a name server that
// knows outside.example.
func serveOutside(t *testing.T) {
	t.Helper()
	cmd := exec.Command("nsenter", "--net=/run/netns/outside", echo, "serve", "tcp:80", "udp:81", "dns:outside.example.="+outside)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	dialOut(testdeadline.Context(t, 10*time.Second), t, "tcp", outside+":80", outside)
}

// dialIn waits until the program echo at an address answers the host.
func dialIn(ctx context.Context, t *testing.T, network, address string) {
	t.Helper()
	until(ctx, t, network+" "+address+" from the host", func() bool {
		out, err := exec.CommandContext(ctx, echo, "dial", network, address, "hello").Output()
		return err == nil && strings.HasSuffix(string(out), " hello\n")
	})
}

// dialOut waits until the program echo at an address answers the outside, and checks the sender that it saw.
func dialOut(ctx context.Context, t *testing.T, network, address, sender string) {
	t.Helper()
	var out []byte
	until(ctx, t, network+" "+address+" from outside", func() (ok bool) {
		var err error
		out, err = exec.CommandContext(ctx, "nsenter", "--net=/run/netns/outside", echo, "dial", network, address, "hello").Output()
		return err == nil
	})
	if want := sender + " hello\n"; string(out) != want {
		t.Errorf("%s %s from outside: %q, want %q", network, address, out, want)
	}
}

// connect returns the text that a server sends, or an empty string if it cannot be reached.
func connect(address string) string {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	text, _ := io.ReadAll(conn)
	return string(text)
}
