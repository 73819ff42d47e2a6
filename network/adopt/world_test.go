package adopt

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/thread"
)

func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }

// world is a network namespace of a test. It ends with the test and its taps.
type world struct{ ns *os.File }

// newWorld returns a new namespace after the commands of ip(8).
func newWorld(t *testing.T, commands ...string) world {
	t.Helper()
	var w world
	err := thread.Do(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		w.ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.ns.Close() })
	w.ip(t, commands...)
	return w
}

// ip runs commands of ip(8).
func (w world) ip(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		w.run(t, "ip "+c)
	}
}

// run runs a command and returns its output.
func (w world) run(t *testing.T, command string) string {
	t.Helper()
	var out []byte
	err := Inside(w.ns, func() (err error) {
		args := strings.Fields(command)
		out, err = exec.Command(args[0], args[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// tap makes the VM's first tap. It ends with the test.
func (w world) tap(t *testing.T) *os.File {
	t.Helper()
	f, err := MakeTap(w.ns, TapName(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// join calls Join. The taps end with the test.
func (w world) join(t *testing.T) Result {
	t.Helper()
	r, err := Join(w.ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// queues returns the ingress queues and filters of every interface, as tc(8) prints them.
func (w world) queues(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(w.run(t, "tc qdisc show")) {
		if strings.Contains(line, "ingress") || strings.Contains(line, "clsact") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// redirected reports whether the packets that enter one interface leave at the other, and vice versa.
func (w world) redirected(t *testing.T, one, other string) bool {
	t.Helper()
	for from, to := range map[string]string{one: other, other: one} {
		got := w.run(t, "tc filter show ingress dev "+from)
		if strings.Count(got, "mirred") != 1 || !strings.Contains(got, "Egress Redirect to device "+to) {
			return false
		}
	}
	return true
}

// moveTo moves an interface to another namespace.
func moveTo(w, other world, name string) error {
	return Inside(w.ns, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(l, int(other.ns.Fd()))
	})
}
