package warm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
)

// TestRefused: a fork that is refused returns the reason and leaves nothing behind, and the parent can still be forked.
func TestRefused(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() }) // after the parallel tests
	for _, test := range []struct {
		name, mode string
		request    Request
		errno      unix.Errno
		text       string
		after      string // makes the next fork succeed
	}{
		{name: "busy", mode: "busy", errno: unix.EBUSY, text: "find the threads quiet", after: "quiet"},
		{name: "epoll", mode: "epoll", errno: unix.ENOTSUP, text: "anon_inode:[eventpoll]"},
		{name: "listener", mode: "listener", errno: unix.EBUSY, text: "a listening socket that the request does not replace"},
		{name: "threads", mode: "threads=300", errno: unix.E2BIG, text: "park the threads: too many"},
		{name: "main thread", mode: "headless", errno: unix.ETIMEDOUT, text: "the thread"},
		{name: "name", request: Request{Name: "bulkhead-b"}, errno: unix.EINVAL, text: "a name of another length"},
		{
			name: "cgroup", request: Request{Confinement: Confinement{Groups: []*os.File{null}}},
			errno: unix.EBADF, text: "join a cgroup",
		},
		{
			name: "namespace", request: Request{Confinement: Confinement{NetNS: null}},
			errno: unix.EINVAL, text: "join the network namespace",
		},
		{
			name: "landlock", request: Request{Confinement: Confinement{Landlock: null}},
			errno: unix.EBADFD, text: "enter the landlock",
		},
		{
			name: "filter", request: Request{Confinement: Confinement{Filter: null}},
			errno: unix.EINVAL, text: "read the filter",
		},
		{
			name: "number", request: Request{Files: []qemu.Inherited{{Number: 99, File: null}}},
			errno: unix.EBADF, text: "a file in the place of none",
		},
		{
			name: "control", request: Request{Files: []qemu.Inherited{{Number: 4, File: null}}},
			errno: unix.EBADF, text: "a file in the place of none",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := plain.start(t, test.mode)
			_, listener := socket(t)
			test.request.Files = append(test.request.Files, qemu.Inherited{Number: 3, File: listener})
			_, err := p.Fork(p.ctx, test.request)
			meant := errors.Is(err, test.errno)
			if !errors.Is(err, ErrFork) || errors.Is(err, errGone) || !meant || !strings.Contains(err.Error(), test.text) {
				t.Errorf("fork: %v", err)
			}
			p.alone(t)
			if test.name == "main thread" {
				return
			}
			p.workers(t, p.ctx)
			if test.after != "" {
				p.ask(t, p.ctx, test.after)
			}
			if test.mode == "" || test.after != "" {
				c, _ := p.child(Request{})
				c.workers(t, p.ctx)
			}
		})
	}
}

// mostFDs is the most descriptors that a parent accepts: files, cgroups, and the others of Confinement.
const mostFDs = maxFiles + maxGroups + 5

// TestAnotherVersion: requests that this package does not send are refused too.
func TestAnotherVersion(t *testing.T) {
	t.Parallel()
	p := plain.start(t)
	good, _, err := Request{}.encode()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	change := func(at int, value byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = value
		return b
	}
	for name, test := range map[string]struct {
		packet []byte
		fds    int
		text   string
	}{
		"version":            {change(0, 2), 0, "another version"},
		"flag":               {change(5, 1), 0, "another version"},
		"short":              {good[:len(good)-1], 0, "read the request"},
		"long":               {append(change(0, 1), 0), 0, "read the request"},
		"missing descriptor": {change(4, 8), 0, "its descriptors"},
		"more descriptors":   {good, 1, "its descriptors"},
		"all that it takes":  {good, mostFDs, "its descriptors"},
		"one too many":       {good, mostFDs + 1, "read the request\x00"},
		"too many":           {good, 100, "read the request\x00"},
		"files":              {change(27, 255), 0, "its descriptors"},
		"endless name":       {change(len(good)-1, 'x'), 0, "a name of another length"},
	} {
		var fds []int
		for range test.fds {
			fds = append(fds, int(null.Fd()))
		}
		a, err := p.exchange(test.packet, fds)
		if err != nil || a.Error != int32(unix.EINVAL) || !strings.Contains(string(a.Text[:]), test.text) {
			t.Errorf("%s: %v, %d, %s", name, err, a.Error, strings.TrimRight(string(a.Text[:]), "\x00"))
		}
	}
	c, _ := p.child(Request{})
	c.workers(t, p.ctx)
}
