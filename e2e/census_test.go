package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// process is a process of a world.
type process struct {
	pid  int
	args []string
}

func (p process) String() string { return strconv.Itoa(p.pid) + " " + strings.Join(p.args, " ") }

// kind describes the process without the parts that differ between processes of a kind.
func (p process) kind() string {
	switch {
	case p.is("engine"):
		return "engine"
	case p.shim() != "":
		return "shim " + p.shim()
	case p.qemu() != "":
		return "qemu " + p.qemu()
	}
	return filepath.Base(p.args[0])
}

func (p process) is(command string) bool {
	return len(p.args) > 0 && filepath.Base(p.args[0]) == "bulkhead-"+command
}

// shim returns the sandbox of a shim.
func (p process) shim() string {
	if len(p.args) == 3 && p.args[0] == "bulkhead-shim" {
		return p.args[2]
	}
	return ""
}

// qemu returns the name of a VM without the driver's prefix: bulkhead- or template-, and twelve digits.
func (p process) qemu() string {
	if len(p.args) > 0 && strings.HasPrefix(filepath.Base(p.args[0]), "qemu-") {
		if i := slices.Index(p.args, "-name"); i > 0 && i+1 < len(p.args) {
			name, _, _ := strings.Cut(strings.TrimPrefix(p.args[i+1], "guest="), ",")
			return strings.TrimPrefix(name, "bulkhead-")
		}
	}
	return ""
}

// warm reports whether the process is a VM that others are forked from. Such VMs have one more thread.
func (p process) warm() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", p.pid))
	return p.qemu() != "" && slices.ContainsFunc(threads, func(path string) bool {
		name, err := os.ReadFile(path)
		return err == nil && string(name) == "warm\n"
	})
}

// processes finds all processes of the world: by the directory in their environment or arguments, or by a socket of
// the directory that they hold. Zombies do not count.
func (w *world) processes() []process {
	sockets := w.inodes()
	var found []process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || len(cmdline) == 0 || pid == os.Getpid() {
			continue
		}
		env, _ := os.ReadFile(dir + "/environ")
		if !strings.Contains(string(cmdline), filepath.Base(w.dir)) && !strings.Contains(string(env), w.dir) && !holds(dir, sockets) {
			continue
		}
		found = append(found, process{pid, strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")})
	}
	return found
}

func holds(dir string, sockets map[string]string) bool {
	fds, _ := filepath.Glob(dir + "/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && sockets[target] != "" {
			return true
		}
	}
	return false
}

// inodes returns the unix sockets bound below the directory, in all network namespaces of processes: the path by
// "socket:[inode]".
func (w *world) inodes() map[string]string {
	found := map[string]string{}
	seen := map[string]bool{}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range links {
		ns, err := os.Readlink(link)
		if err != nil || seen[ns] {
			continue
		}
		table, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(link)), "net/unix"))
		if err != nil {
			continue
		}
		seen[ns] = true
		for line := range strings.Lines(string(table)) {
			fields := strings.Fields(line)
			if len(fields) == 8 && strings.HasPrefix(fields[7], w.dir+"/") && fields[7] != w.faults.Path {
				found["socket:["+fields[6]+"]"] = fields[7]
			}
		}
	}
	return found
}

// engine returns the process id of the engine, 0 if none runs.
func (w *world) engine() int {
	for _, p := range w.processes() {
		if p.is("engine") {
			return p.pid
		}
	}
	return 0
}

var temporary = regexp.MustCompile(`\.\d+$`)

// census lists everything of the world: processes, sockets, mounts, cgroups and files. It includes pins of images
// and templates, but not their contents.
func (w *world) census() []string {
	var all []string
	for _, p := range w.processes() {
		if !p.is("engine") { // it may have ended by itself, or be a new one
			all = append(all, "process "+p.kind())
		}
	}
	for _, path := range w.inodes() {
		if filepath.Base(path) != filepath.Base(client.Socket(w.roots())) {
			all = append(all, "socket "+strings.TrimPrefix(path, w.dir))
		}
	}
	all = append(all, w.cgroups()...)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, w.dir+"/") {
			all = append(all, "mount "+strings.TrimSpace(line))
		}
	}
	_ = filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, w.dir)
		switch {
		case err != nil:
			return nil //nolint:nilerr // it vanished meanwhile
		case strings.HasPrefix(name, "/data/images/") && !strings.HasPrefix(name, "/data/images/pins") && strings.Count(name, "/") > 2,
			strings.HasPrefix(name, "/data/templates/") && strings.Count(name, "/") > 3,
			filepath.Base(name) == "run.sock", filepath.Base(name) == "engine.log", path == w.faults.Path:
			return nil
		}
		all = append(all, "file "+temporary.ReplaceAllString(name, ".TMP"))
		return nil
	})
	slices.Sort(all)
	return all
}

// cgroups lists the pods' cgroups on the host by their paths.
func (w *world) cgroups() (found []string) {
	sum := sha256.Sum256([]byte(w.roots().Data + "\x00" + w.roots().State)) // as the engine names them
	tag := "bulkhead-" + client.Instance + "-" + hex.EncodeToString(sum[:4])
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && (strings.Contains(path, tag+"/") || filepath.Base(path) == w.container()) {
			found = append(found, "cgroup "+path)
		}
		return nil // a vanished cgroup does not count
	})
	return found
}

// awaitSame waits until nothing differs from before, or a timeout, and returns the differences. Processes take a
// moment to vanish.
func (w *world) awaitSame(before []string) (diff []string) {
	for deadline := time.Now().Add(testdeadline.For(3 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
		diff = compare(before, w.census())
		if len(diff) == 0 || time.Now().After(deadline) {
			return diff
		}
	}
}

// calm returns the census once it has stopped changing. The report of an end may come before the cleanup after it.
func (w *world) calm() []string {
	last := w.census()
	for deadline := time.Now().Add(testdeadline.For(3 * time.Second)); ; {
		time.Sleep(100 * time.Millisecond)
		now := w.census()
		if len(compare(last, now)) == 0 || time.Now().After(deadline) {
			return now
		}
		last = now
	}
}

func compare(before, after []string) (diff []string) {
	count := map[string]int{}
	for _, s := range before {
		count[s]--
	}
	for _, s := range after {
		count[s]++
	}
	for s, n := range count {
		if n != 0 {
			diff = append(diff, fmt.Sprintf("%+d %s", n, s))
		}
	}
	slices.Sort(diff)
	return diff
}

// kill kills a process and returns when the process is gone. A zombie counts as gone.
func kill(pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(10*time.Second))
	defer cancel()
	id, err := procid.Of(pid)
	if err == nil {
		err = id.Signal(unix.SIGKILL)
	}
	if err == nil {
		err = id.Wait(ctx)
	}
	if errors.Is(err, procid.ErrGone) {
		err = nil
	}
	return err
}

func gone(ctx context.Context, pid int) error {
	id, err := procid.Of(pid)
	if errors.Is(err, procid.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return id.Wait(ctx)
}
