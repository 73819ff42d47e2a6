package e2e

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

var writeWall = flag.Bool("write-wall", false, "write the results of TestWall into docs/security.md")

// TestWall: code in a pod's QEMU that makes arbitrary system calls reaches what docs/security.md says, and no more.
// Each wall is also tested without one of the others.
func TestWall(t *testing.T) {
	testturn.SkipUnless(t, 1, 3)
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	if os.Geteuid() != 0 {
		t.Skip("traces processes of other users: needs root")
	}
	if err := confine.Landlock(); err != nil {
		t.Skipf("the table is of a kernel with all of Landlock: %v", err)
	}
	columns := []*struct {
		name    string
		warm    string // on: the first VM is a fork; the ones after a killed VM are not
		uid     int
		begin   func(*exec.Cmd) error
		options int
		got     measured
	}{
		{name: "root's pod", warm: "on"},
		{name: "a user's pod", warm: "off", uid: someone},
		{name: "root's, no Landlock", warm: "off", begin: withoutLandlock},
		{name: "root's, no filters", warm: "off", options: suspendSeccomp},
	}
	t.Run("columns", func(t *testing.T) {
		for _, c := range columns {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				w := newWorldOf(t, c.uid, c.warm)
				if c.begin != nil {
					w.shutdown(t)
					w.begin = c.begin
				}
				c.got = measure(t, w, c.options)
			})
		}
	})
	if t.Failed() {
		return
	}
	got := []string{"| code in QEMU tries | "}
	for _, c := range columns {
		got[0] += c.name + " | "
	}
	got[0] += "where it works |"
	got = append(got, strings.Repeat("|---", len(columns)+2)+"|")
	for i, a := range (prey{}).all() {
		row := "| " + a.what + " |"
		for _, c := range columns {
			row += " " + c.got.results[i] + " |"
		}
		got = append(got, row+" "+a.why+" |")
	}
	got = append(got, "", "It holds these descriptors: "+strings.Join(columns[0].got.held, "; ")+".", "")
	compareWall(t, strings.Join(got, "\n"))
}

// compareWall compares the measured results with the documentation.
func compareWall(t *testing.T, got string) {
	t.Helper()
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "docs/security.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), "<!-- TestWall writes this -->\n")
	documented, after, ends := strings.Cut(rest, "<!-- until here -->\n")
	if !found || !ends {
		t.Fatalf("%s has no place for the table", path)
	}
	if *writeWall {
		text := before + "<!-- TestWall writes this -->\n" + got + "<!-- until here -->\n" + after
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(withoutMissing(documented), withoutMissing(got)); diff != "" {
		t.Errorf("%s does not match the results (-documented +measured; go test ./e2e -run TestWall -write-wall writes it):\n%s",
			path, diff)
	}
}

// withoutMissing returns a table without the row for /dev/kvm if this host has no such device.
func withoutMissing(table string) string {
	if _, err := os.Stat("/dev/kvm"); err == nil {
		return table
	}
	lines := slices.DeleteFunc(strings.Split(table, "\n"), func(line string) bool { return strings.HasPrefix(line, "| open /dev/kvm |") })
	return strings.Join(lines, "\n")
}

// measured has the results of the actions in their order, and the descriptors that the process holds.
type measured struct{ results, held []string }

// measure tries all actions. If an action ends the process, another pod's process follows.
func measure(t *testing.T, w *world, options int) (m measured) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.must(t, "", "run", "-d", "-q", "--name", "other", image, "sleep", "1000")
	other := w.facts(t, "other")
	file := filepath.Join(w.home(t, "wall"), "file")
	if err := errors.Join(os.WriteFile(file, []byte("secret\n"), 0o600), os.Lchown(file, w.uid, w.uid)); err != nil {
		t.Fatal(err)
	}
	var in *injected
	var p prey
	for i := range (prey{}).all() {
		if in == nil {
			w.must(t, "", "run", "-d", "-q", "--name", "victim", image, "sleep", "1000")
			f := w.facts(t, "victim")
			own := filepath.Dir(f.ShimLog)
			p = prey{
				shim: f.ShimPID, engine: w.engine(), other: other.VMPID, own: own, others: filepath.Dir(other.ShimLog), file: file,
				state: w.roots().State, planted: filepath.Join(own, "planted"), engineSocket: filepath.Join(filepath.Dir(own), "run.sock"),
				port: l.Addr().(*net.TCPAddr).Port,
			}
			in = inject(t, f.VMPID, options)
		}
		plant(t, p)
		if m.held == nil {
			for kind := range in.holding() {
				m.held = append(m.held, kind)
			}
			slices.Sort(m.held)
		}
		a := p.all()[i]
		result := a.try(in)
		m.results = append(m.results, in.describe(result))
		if result == killed || result == replaced {
			in.kill()
			in = nil
			w.must(t, "", "rm", "-f", "victim")
		}
	}
	if in != nil {
		if err := in.release(); err != nil {
			t.Error(err)
		}
		if out := w.must(t, "", "exec", "victim", "--", "echo", "alive"); out != "alive\n" {
			t.Errorf("after all of this the pod says %q", out)
		}
	}
	w.must(t, "", "rm", "-f", "--all")
	w.shutdown(t)
	return m
}

// plant writes a file of the pod into the pod's directory.
func plant(t *testing.T, p prey) {
	t.Helper()
	var s unix.Stat_t
	err := errors.Join(os.WriteFile(p.planted, []byte("planted\n"), 0o600), unix.Stat(p.own, &s))
	if err == nil {
		err = os.Lchown(p.planted, int(s.Uid), int(s.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// describe formats a result for the table.
func (in *injected) describe(result int64) string {
	switch {
	case result == killed && in.status.Signal() == unix.SIGSYS:
		return "killed"
	case result == killed:
		return fmt.Sprintf("ended (%#x)", in.status)
	case result < 0:
		return unix.ErrnoName(unix.Errno(-result))
	}
	return "**works**"
}

// all returns the actions in the order of the table.
func (p prey) all() []action {
	return slices.Concat(p.held(), p.files(), p.processes(), p.kernel(), p.sockets(), p.programs())
}

// withoutLandlock starts a command in a filter that makes the kernel appear to lack Landlock, also for its
// children.
func withoutLandlock(cmd *exec.Cmd) (err error) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, and its filter with it
		if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
			done <- fmt.Errorf("take Landlock away: %w", errno)
			return
		}
		done <- cmd.Start()
	}()
	return <-done
}
