package warm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sanitized ends the program at any undefined behaviour.
var sanitized = &build{flags: []string{"-fsanitize=undefined", "-fno-sanitize-recover=all"}}

var addresses = &build{flags: []string{"-fsanitize=address", "-fno-omit-frame-pointer"}}

// TestThreads checks that a child has all threads of its parent, that each continues in the call in which it waited,
// and that the C library and the kernel work in it. The parent's threads must continue too.
func TestThreads(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*build{"plain": plain, "undefined behaviour": sanitized, "addresses": addresses} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := b.start(t)
			before := p.workers(t, p.ctx)
			c, a := p.child(Request{Name: p.sibling()})
			theirs := slices.DeleteFunc(names(t, p.pid), func(s string) bool { return s == "warm" })
			if got := names(t, c.pid); !slices.Equal(got, theirs) || a.Threads != len(got) {
				t.Errorf("the child has the threads %v, the answer says %d, the parent has %v", got, a.Threads, theirs)
			}
			for range 3 {
				after := c.workers(t, p.ctx)
				for name, tid := range after {
					if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%s", c.pid, tid)); err != nil || before[name] == tid {
						t.Errorf("worker %s says it is thread %s: %v", name, tid, err)
					}
				}
				if len(after) != len(before) || len(after) == 0 {
					t.Errorf("workers of the child: %v", after)
				}
			}
			for _, g := range []target{c, p.target} {
				for _, word := range []string{"release", "bury"} {
					if got := g.ask(t, p.ctx, word); got != "ok" {
						t.Errorf("process %d: %s: %s", g.pid, word, got)
					}
				}
				g.workers(t, p.ctx)
			}
			if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.pid)); !strings.HasSuffix(string(got), "-name\x00"+p.sibling()+"\x00") {
				t.Errorf("the child's arguments are %q, %v", got, err)
			}
		})
	}
}

// TestDescriptors checks that neither the parent nor another child sees what a child does with a descriptor.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	p := plain.start(t, "empty-epoll")
	c, _ := p.child(Request{})
	other, _ := p.child(Request{})
	for _, g := range []target{c, other, p.target} {
		count := g.ask(t, p.ctx, "count")
		again := g.ask(t, p.ctx, "count")
		if count != "7" || again != strconv.Itoa(-int(unix.EAGAIN)) {
			t.Errorf("the event's count is %s, then %s", count, again)
		}
		want := "0" // its peer has hung up
		if g == p.target {
			want = strconv.Itoa(-int(unix.EAGAIN))
		}
		if got := g.ask(t, p.ctx, "peer"); got != want {
			t.Errorf("a connected socket reads %s, want %s", got, want)
		}
	}
	if err := unix.Kill(c.pid, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for c.ask(t, p.ctx, "signals") != "1" {
		continue // until it has seen it, or the deadline
	}
	for _, g := range []target{other, p.target} {
		if got := g.ask(t, p.ctx, "signals"); got != "0" {
			t.Errorf("another process has seen %s signals of a child", got)
		}
	}
	want := links(t, p.pid)
	for _, g := range []target{c, other} {
		got := links(t, g.pid)
		for n, link := range got {
			if kind, _, _ := strings.Cut(want[n], ":["); !strings.HasPrefix(link, kind) {
				t.Errorf("descriptor %s is %s in the child, %s in the parent", n, link, want[n])
			}
			if strings.HasPrefix(link, "socket:") && link == want[n] {
				t.Errorf("the child has descriptor %s of its parent: %s", n, link)
			}
		}
		if len(got) != len(want)-1 { // the control
			t.Errorf("the child has the descriptors %v, the parent %v", got, want)
		}
	}
}

// links returns the targets of a process's descriptors by number.
func links(t *testing.T, pid int) map[string]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		if all[e.Name()], err = os.Readlink(dir + e.Name()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
