package launcher

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// shared is the only reaper in this process, and program the compiled launcher.
var (
	shared  = reaper.New()
	program string
	built   error
)

func TestMain(m *testing.M) {
	testgo.NeedTree()
	dir, err := os.MkdirTemp("", "bulkhead-launcher-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	const source = "../../../guest/launcher/"
	program = filepath.Join(dir, "launcher")
	flags, err := os.ReadFile(source + "flags")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	files, err := filepath.Glob(source + "*.c")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	args := append(append(strings.Fields(string(flags)), "-o", program), files...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil { // before the reaper runs, which takes every child
		built = fmt.Errorf("gcc: %w: %s", err, out)
	}
	go shared.Run()
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func start(t *testing.T) *Launcher {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if built != nil {
		t.Fatal(built)
	}
	l, err := Start(program, shared)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.conn.Close()
		wait(t, l.child) // it ends with its socket
	})
	return l
}

func wait(t *testing.T, c *reaper.Child) unix.WaitStatus {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(testdeadline.For(20 * time.Second)):
		t.Fatalf("process %d does not end", c.PID())
	}
	return c.Status()
}

// container starts a process in new namespaces and a new cgroup. It ends with the test.
func container(t *testing.T, filter ...byte) Target {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(mounts) == 0 {
		t.Skipf("needs cgroup2: %v", err)
	}
	group, err := os.MkdirTemp(mounts[0].Mountpoint, "launcher-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	ready, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	const script = `mount --make-rprivate / && mount -t proc proc /proc && echo ready && exec sleep 1000`
	first, err := shared.Start("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
		Files: []uintptr{0, theirs.Fd(), 2}, Env: []string{"PATH=/bin:/usr/bin:/sbin"},
		Sys: &syscall.SysProcAttr{Cloneflags: namespaces},
	})
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		first.Signal(unix.SIGKILL)
		wait(t, first)
	})
	if _, err := io.ReadFull(ready, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return Target{Container: NewContainer([]byte(`{}`), filter), First: first, Cgroup: group}
}

// run starts a process and returns its output and its status.
func (l *Launcher) run(t *testing.T, target Target, process string) (string, unix.WaitStatus, error) {
	t.Helper()
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	target.Stdio[1], target.Stdio[2] = theirs, theirs
	before := false
	child, err := l.Exec(json.RawMessage(process), target, func() { before = true })
	theirs.Close()
	if err != nil {
		return "", 0, err
	}
	out, err := io.ReadAll(ours)
	if err != nil {
		t.Fatal(err)
	}
	status := wait(t, child)
	if !before {
		t.Error("onExit did not run")
	}
	return string(out), status, nil
}

// command is a process that runs a script, with further fields.
func command(script, more string) string {
	args, _ := json.Marshal([]string{"sh", "-c", script})
	return fmt.Sprintf(`{"args":%s,"cwd":"/","env":["HOME=/","PATH=/bin:/usr/bin"],"user":{"uid":0,"gid":0}%s}`, args, more)
}

func TestExec(t *testing.T) {
	l := start(t)
	target := container(t)
	const look = `echo $PPID $(cut -d' ' -f5,6 /proc/self/stat); ls /proc/self/fd | wc -l; id -u; id -g; id -G; umask; pwd; ulimit -n
		grep -E "Cap|NoNew|Seccomp:|SigIgn|SigBlk" /proc/self/status | cut -f2; env | sort; exit 5`
	p := `{"args":["sh","-c",` + string(must(json.Marshal(look))) + `],"cwd":"/tmp","env":["HOME=/","PATH=/bin:/usr/bin","X=1"],
		"user":{"uid":12,"gid":34,"umask":23,"additionalGids":[5]},"rlimits":[{"type":"RLIMIT_NOFILE","soft":50,"hard":60}],
		"capabilities":{"bounding":["CAP_KILL","CAP_CHOWN"],"permitted":["CAP_KILL"],"effective":["CAP_KILL"],
		"inheritable":["CAP_KILL"],"ambient":["CAP_KILL","CAP_CHOWN"]},"noNewPrivileges":true}`
	want := "0 0 0\n4\n12\n34\n34 5\n0027\n/tmp\n50\n" +
		"0000000000000000\n0000000000000000\n" + strings.Repeat("0000000000000020\n", 3) + "0000000000000021\n0000000000000020\n" +
		"1\n0\nHOME=/\nPATH=/bin:/usr/bin\nPWD=/tmp\nX=1\n"
	out, status, err := l.run(t, target, p)
	if err != nil || status.ExitStatus() != 5 || out != want {
		t.Errorf("%v, %#x, %q\nwant %q", err, status, out, want)
	}
	for kind, is := range map[string]bool{"mnt": true, "pid": true, "net": true, "ipc": true, "uts": true, "cgroup": true, "user": false} {
		theirs := must(os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", target.First.PID(), kind)))
		out, _, err := l.run(t, target, command("readlink /proc/self/ns/"+kind, ""))
		if ours := must(os.Readlink("/proc/self/ns/" + kind)); err != nil || strings.TrimSpace(out) != theirs || (ours != theirs) != is {
			t.Errorf("namespace %s: %v, %q instead of %q", kind, err, out, theirs)
		}
	}
	out, _, err = l.run(t, target, command("grep ^0:: /proc/self/cgroup", ""))
	if err != nil || filepath.Base(strings.TrimSpace(out)) != filepath.Base(target.Cgroup) {
		t.Errorf("cgroup %q, %v", out, err)
	}
	large := strings.Replace(command("echo ${#0}", ""), `${#0}"`, `${#0}","`+strings.Repeat("x", 120<<10)+`"`, 1)
	if out, _, err := l.run(t, target, large); err != nil || out != "122880\n" {
		t.Errorf("a large argument: %q, %v", out, err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, status, err := l.run(t, target, command(fmt.Sprintf("exit %d", i), "")); err != nil || status.ExitStatus() != i {
				t.Errorf("process %d: %v, %#x", i, err, status)
			}
		})
	}
	all.Wait()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestFilter: a filter holds from the first instruction of the program, with and without no_new_privs.
func TestFilter(t *testing.T) {
	l := start(t)
	var filter []byte
	for _, i := range []unix.SockFilter{ // fail mkdir with EXDEV
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_MKDIR},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x50000 | uint32(unix.EXDEV)}, {Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},
	} {
		filter = must(binary.Append(filter, binary.LittleEndian, i))
	}
	target := container(t, filter...)
	for _, more := range []string{"", `,"noNewPrivileges":true,"user":{"uid":5,"gid":5}`} {
		out, _, err := l.run(t, target, command("mkdir /tmp/launcher-test; grep Seccomp: /proc/self/status", more))
		if err != nil || !strings.Contains(out, "cross-device") || !strings.Contains(out, "Seccomp:\t2") {
			t.Errorf("%s: %v, %q", more, err, out)
		}
	}
	target.Container = NewContainer([]byte(`{}`), make([]byte, 8)) // not a filter
	if _, _, err := l.run(t, target, command("", "")); !errors.Is(err, ErrDeclined) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("a bad filter: %v", err)
	}
}

// TestFailures: a failure of the command and one of the launcher are different errors.
func TestFailures(t *testing.T) {
	l := start(t)
	target := container(t)
	for p, want := range map[string]error{
		`"args":["nothing"]`:                unix.ENOENT,
		`"args":["/nothing"]`:               unix.ENOENT,
		`"args":["./nothing"],"cwd":"/tmp"`: unix.ENOENT,
		`"args":["/etc"]`:                   unix.EPERM,
		`"args":["/etc/passwd"]`:            unix.EACCES,
		`"args":["/etc/passwd/x"]`:          unix.ENOTDIR,
		`"args":["` + strings.Repeat("x", 4090) + `"],"env":["HOME=/","PATH=/aaaa"]`: unix.ENOENT,
		`"args":["/` + strings.Repeat("x", 5000) + `"]`:                              unix.ENAMETOOLONG,
		`"cwd":"/nothing"`: unix.ENOENT,
	} {
		p = strings.TrimSuffix(command("", ""), "}") + "," + p + "}"
		_, _, err := l.run(t, target, p)
		if !errors.Is(err, want) || !errors.As(err, new(*StepError)) || errors.Is(err, ErrDeclined) {
			t.Errorf("%.200s: %v, want %v", p, err, want)
		}
	}
	out, status, err := l.run(t, target, strings.Replace(command("", ""), `"sh"`, `"./launcher-empty","`+strings.Repeat("x", 200<<10)+`"`, 1))
	if !errors.Is(err, ErrDeclined) {
		t.Errorf("a large argument: %v, %#x, %q", err, status, out)
	}
	nobody := target
	nobody.Cgroup = t.TempDir()
	if _, _, err := l.run(t, nobody, command("", "")); !errors.Is(err, ErrDeclined) || errors.Is(err, ErrLost) {
		t.Errorf("not a cgroup: %v", err)
	}
	if _, _, err := l.run(t, target, command("", `,"rlimits":[{"type":"RLIMIT_CPU","soft":2,"hard":1}]`)); !errors.Is(err, ErrDeclined) {
		t.Errorf("a bad limit: %v", err)
	}
	ended := target
	ended.First = must(shared.Start("/bin/true", []string{"true"}, &syscall.ProcAttr{}))
	wait(t, ended.First)
	if _, _, err := l.run(t, ended, command("", "")); !errors.Is(err, ErrDeclined) || errors.Is(err, ErrLost) {
		t.Errorf("a container that has ended: %v", err)
	}
	if _, status, err := l.run(t, target, command("exit 3", "")); err != nil || status.ExitStatus() != 3 {
		t.Errorf("after the failures: %v, %#x", err, status)
	}
}

// TestGarbage: the launcher drops each invalid message and goes on.
func TestGarbage(t *testing.T) {
	l := start(t)
	target := container(t)
	good := must(target.Container.encode(json.RawMessage(command("exit 1", ""))))
	with := func(offset int, value uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[offset:], value)
		return b
	}
	messages := [][]byte{
		{}, {1}, good[:headerSize-1], good[:headerSize], good[:len(good)-1], append(bytes.Clone(good), 0), bytes.Repeat([]byte{0xff}, 500),
		make([]byte, maxMessage+1), append(bytes.Clone(good[:len(good)-1]), 'x'), with(0, 1), with(4, 1),
	}
	for offset := headerSize - 40; offset < headerSize; offset += 4 {
		for _, value := range []uint32{0, 1 << 16, 1 << 31, 0xffffffff, 0xfffffff8, 17} {
			if m := with(offset, value); !bytes.Equal(m, good) {
				messages = append(messages, m)
			}
		}
	}
	for i, m := range messages {
		for _, count := range []int{0, 5, 6, 7, 100} {
			if count != 6 && i > 0 || len(m) == 0 {
				m = good
			}
			if bytes.Equal(m, good) && count == 6 {
				continue
			}
			ours, theirs, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			fds := make([]int, count)
			for i := range fds {
				fds[i] = int(theirs.Fd())
			}
			if _, _, err := l.conn.WriteMsgUnix(m, unix.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			theirs.Close()
			if got := must(io.ReadAll(ours)); len(got) > 0 {
				t.Errorf("message %d with %d descriptors: %x", i, count, got)
			}
			ours.Close()
		}
	}
	if n := len(must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", l.child.PID())))); n != 4 {
		t.Errorf("the launcher has %d descriptors", n)
	}
	if _, status, err := l.run(t, target, command("exit 3", "")); err != nil || status.ExitStatus() != 3 {
		t.Errorf("after garbage: %v, %#x", err, status)
	}
}

// TestLost: a launcher that is killed or does not answer is lost, and later calls decline at once.
func TestLost(t *testing.T) {
	target := container(t)
	for name, do := range map[string]func(l *Launcher){
		"killed":  func(l *Launcher) { l.child.Signal(unix.SIGKILL); wait(t, l.child) },
		"stopped": func(l *Launcher) { l.child.Signal(unix.SIGSTOP); l.answer = 100 * time.Millisecond },
	} {
		l := start(t)
		do(l)
		if _, _, err := l.run(t, target, command("", "")); !errors.Is(err, ErrDeclined) || !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := l.run(t, target, command("", "")); !errors.Is(err, ErrDeclined) || errors.Is(err, ErrLost) {
			t.Errorf("%s, again: %v", name, err)
		}
		wait(t, l.child)
	}
}

// TestFrozen: a container that stops a new process does not stop the launcher, and the process never runs.
func TestFrozen(t *testing.T) {
	l := start(t)
	target := container(t)
	freeze := func(value string) {
		if err := os.WriteFile(filepath.Join(target.Cgroup, "cgroup.freeze"), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	freeze("1")
	l.answer = time.Second
	mark := filepath.Join(t.TempDir(), "ran")
	if _, _, err := l.run(t, target, command("touch "+mark, "")); !errors.Is(err, ErrDeclined) || errors.Is(err, ErrLost) {
		t.Errorf("frozen: %v", err)
	}
	freeze("0")
	l.answer = answerTime
	if _, status, err := l.run(t, target, command("exit 3", "")); err != nil || status.ExitStatus() != 3 {
		t.Errorf("afterwards: %v, %#x", err, status)
	}
	for { // until the helper has ended
		left, err := os.ReadFile(filepath.Join(target.Cgroup, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the process ran: %v", err)
	}
}

// TestReports: every report has one outcome. Garbage loses the launcher.
func TestReports(t *testing.T) {
	for _, tc := range []struct {
		step, value uint32
		want        error
		lost        bool
	}{
		{1, 8, nil, false}, {1, 1, unix.EBADMSG, true}, {0, 8, unix.EBADMSG, true}, {36, 8, unix.EBADMSG, true},
		{17, 1, ErrDeclined, false}, {17, 1, unix.EPERM, false}, {29, 2, unix.ENOENT, false}, {31, 2, ErrDeclined, false},
	} {
		l := start(t)
		ours, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		must(theirs.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, tc.step), tc.value)))
		theirs.Close()
		pid, err := l.follow(ours)
		if !errors.Is(err, tc.want) || (pid == 8) != (tc.want == nil) || errors.Is(err, ErrLost) != tc.lost || l.isLost() != tc.lost {
			t.Errorf("report %d of %d: %d, %v", tc.step, tc.value, pid, err)
		}
		if pid, err := l.follow(ours); err == nil || pid != 0 { // the pipe has ended
			t.Errorf("no report: %d, %v", pid, err)
		}
		ours.Close()
	}
}

// root returns a root with a shell.
func root(t *testing.T) string {
	t.Helper()
	at := t.TempDir()
	for _, dir := range []string{"bin", "proc", "dev"} {
		must(0, os.Mkdir(filepath.Join(at, dir), 0o755))
	}
	must(0, os.WriteFile(filepath.Join(at, "bin/sh"), must(os.ReadFile("/bin/busybox")), 0o755))
	return at
}

// TestCreate makes containers on a hostile root: no link in it leads out, and no container leaves anything outside.
func TestCreate(t *testing.T) {
	l := start(t)
	target := container(t)
	at, outside := root(t), t.TempDir()
	for name, to := range map[string]string{
		"absolute": outside, "up": "../../../../.." + outside, "loop": "loop", "dangling": "/nowhere/at/all", "link": "bin",
	} {
		must(0, os.Symlink(to, filepath.Join(at, name)))
	}
	tmpfs := func(to string) string {
		return `[{"destination":"/dev","type":"tmpfs","options":["mode=755"]},{"destination":"` + to + `","type":"tmpfs","options":["size=1m"]}]`
	}
	bind := func(to string) string {
		return strings.Replace(tmpfs(to), `"type":"tmpfs","options":["size=1m"]`, `"source":"/etc/passwd","options":["bind"]`, 1)
	}
	for i, tc := range []struct {
		mounts string
		more   map[string]string
		made   bool
	}{
		{tmpfs("/made/deep"), nil, true}, {tmpfs("/link/x"), nil, true}, {bind("/made/file"), nil, true}, {bind("/link/file"), nil, true},
		{tmpfs("/absolute/x"), nil, false}, {tmpfs("/up/x"), nil, false}, {bind("/absolute/x"), nil, false}, {tmpfs("/loop/x"), nil, false},
		{bind("/dangling"), nil, false}, {tmpfs("/made/../../x"), nil, false}, {bind("/loop"), nil, false},
		{tmpfs("/t"), map[string]string{"linux.maskedPaths": `["/absolute","/up","/dangling","/bin/none"]`}, true},
		{tmpfs("/t"), map[string]string{"linux.readonlyPaths": `["/absolute","/up","/dangling","/link"]`}, true},
		{tmpfs("/t"), map[string]string{"linux.devices": `[{"path":"/absolute/d","type":"c","major":1,"minor":5}]`}, false},
		{tmpfs("/t"), map[string]string{"linux.devices": `[{"path":"/dev/x/y","type":"c","major":1,"minor":5}]`}, true},
		{`[{"destination":"/link","type":"proc","source":"proc"}]`, nil, false}, {`[]`, map[string]string{"root": `{"path":"/nowhere"}`}, false},
		{tmpfs("/t"), map[string]string{"linux.resources": `{"unified":{"no.such":"1"}}`}, false},
	} {
		more := map[string]string{
			"root": `{"path":"` + at + `"}`, "mounts": tc.mounts, "process": command("echo made; exit 3", ""),
			"linux.namespaces": `[{"type":"mount"},{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"cgroup"}]`,
		}
		maps.Copy(more, tc.more)
		ours, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		group := filepath.Join(target.Cgroup, fmt.Sprint("c", i))
		c, err := l.Create(t.Context(), bare(more), Place{ID: "c", Cgroup: group, Stdio: [3]*os.File{1: theirs, 2: theirs}}, func() {})
		theirs.Close()
		if (err == nil) != tc.made || err != nil && !errors.Is(err, ErrDeclined) || errors.Is(err, ErrLost) {
			t.Errorf("%d: %s %v: %v", i, tc.mounts, tc.more, err)
		}
		if err == nil {
			must(0, c.Start())
			if out, status := must(io.ReadAll(ours)), wait(t, c.Child); string(out) != "made\n" || status.ExitStatus() != 3 {
				t.Errorf("%d: %q, %#x", i, out, status)
			}
			c.Close()
		}
		ours.Close()
		if err := os.Remove(group); errors.Is(err, os.ErrNotExist) != (c == nil) {
			t.Errorf("%d: the cgroup: %v", i, err)
		}
	}
	if left := must(os.ReadDir(outside)); len(left) > 0 {
		t.Errorf("made outside: %v", left)
	}
	if mounts := must(mountinfo.GetMounts(mountinfo.PrefixFilter(at))); len(mounts) > 0 {
		t.Errorf("mounts are left: %v", mounts)
	}
}

// TestEscape: neither the directory nor the program of a process is reached through a descriptor or a link of /proc.
func TestEscape(t *testing.T) {
	l := start(t)
	target := container(t)
	at := root(t)
	var directories, programs []string
	for fd := range 12 {
		directories = append(directories, fmt.Sprintf("/proc/self/fd/%d", fd))
		link := fmt.Sprintf("link%d", fd)
		must(0, os.Symlink(directories[fd], filepath.Join(at, link)))
		directories = append(directories, "/"+link)
		programs = append(programs, directories[fd]+"/../../../../bin/sh")
	}
	directories = append(directories, "/proc/1/root", "/proc/1/cwd", fmt.Sprintf("/proc/%d/root", os.Getpid()))
	exec := target
	exec.First = inRoot(t, l, target, at)
	for _, process := range slices.Concat(
		each(directories, `{"args":["/bin/sh","-c","exit 3"],"cwd":%q,"env":["HOME=/"],"user":{"uid":0,"gid":0}}`),
		each(programs, `{"args":[%q,"-c","exit 3"],"cwd":"/","env":["HOME=/"],"user":{"uid":0,"gid":0}}`),
	) {
		for _, namespaces := range []string{`[{"type":"mount"}]`, `[{"type":"mount"},{"type":"pid"}]`} {
			s := bare(map[string]string{
				"root": `{"path":"` + at + `"}`, "process": process, "linux.namespaces": namespaces,
				"mounts": `[{"destination":"/dev","type":"tmpfs","options":["mode=755"]},{"destination":"/proc","type":"proc","source":"proc"}]`,
			})
			if c, err := l.Create(t.Context(), s, Place{ID: "c", Cgroup: filepath.Join(target.Cgroup, "c")}, func() {}); err == nil {
				t.Errorf("a container with %s is made", process)
				c.Close()
				wait(t, c.Child)
				os.Remove(filepath.Join(target.Cgroup, "c"))
			}
		}
		if _, status, err := l.run(t, exec, process); err == nil {
			t.Errorf("a process with %s is started: %#x", process, status)
		}
	}
}

// each formats the values.
func each(values []string, format string) (all []string) {
	for _, v := range values {
		all = append(all, fmt.Sprintf(format, v))
	}
	return all
}

// inRoot starts a container in a root, and returns its first process. It ends with the test.
func inRoot(t *testing.T, l *Launcher, target Target, at string) *reaper.Child {
	t.Helper()
	group := filepath.Join(target.Cgroup, "first")
	c, err := l.Create(t.Context(), bare(map[string]string{
		"root": `{"path":"` + at + `"}`, "process": command("read x", ""), "linux.namespaces": `[{"type":"mount"},{"type":"pid"}]`,
		"mounts": `[{"destination":"/dev","type":"tmpfs","options":["mode=755"]},{"destination":"/proc","type":"proc","source":"proc"}]`,
	}), Place{ID: "first", Cgroup: group}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		wait(t, c.Child)
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	return c.Child
}

// TestUnstarted: a container that is closed before its start ends without its program.
func TestUnstarted(t *testing.T) {
	l := start(t)
	target := container(t)
	at := root(t)
	s := bare(map[string]string{
		"root": `{"path":"` + at + `"}`, "process": command("echo >/ran", ""), "linux.namespaces": `[{"type":"mount"}]`,
		"mounts": `[{"destination":"/dev","type":"tmpfs","options":["mode=755"]}]`,
	})
	group := filepath.Join(target.Cgroup, "c")
	c, err := l.Create(t.Context(), s, Place{ID: "c", Cgroup: group}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if status := wait(t, c.Child); status.ExitStatus() != 1 {
		t.Errorf("status %#x", status)
	}
	if err := c.Start(); err == nil {
		t.Error("it can be started")
	}
	if _, err := os.Stat(filepath.Join(at, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it ran: %v", err)
	}
	must(0, os.Remove(group))
}

// TestSealed: a container that keeps the launcher's program open cannot change it after the launcher has ended.
func TestSealed(t *testing.T) {
	l := start(t)
	exe, err := os.Open(fmt.Sprintf("/proc/%d/exe", l.child.PID()))
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	l.child.Signal(unix.SIGKILL)
	wait(t, l.child)
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", exe.Fd()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte{0}); !errors.Is(err, unix.EPERM) {
		t.Errorf("write to the program: %v", err)
	}
}
