// Package leftover finds things that containers have left on the host of package testhost.
package leftover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testhost"
)

// Snapshot is all that containers could leave on a host, by kind.
type Snapshot map[string][]string

// Take describes the host, with the files below dirs, which may be missing. It leaves out the processes that engines keep
// for later containers, and the files of network namespaces that docker removes once a minute.
func Take(t testing.TB, dirs ...string) Snapshot {
	t.Helper()
	s := Snapshot{}
	namespaces := map[string]bool{}
	for _, pid := range processes(t) {
		args := procid.Args(pid)
		if len(args) == 0 {
			continue // it has ended
		}
		if daemon := filepath.Base(args[0]); !slices.Contains(daemons, daemon) {
			s["processes"] = append(s["processes"], strings.Join(args, " "))
		}
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil || namespaces[ns] {
			continue
		}
		namespaces[ns] = true
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(mounts)) {
			fields := strings.Fields(line)
			s["mounts"] = append(s["mounts"], filepath.Base(args[0])+": "+fields[4])
		}
	}
	for _, dir := range testhost.Groups("/sys/fs/cgroup") {
		// Podman leaves its pods' groups in hierarchies without controllers.
		if !strings.Contains(dir, "/systemd/libpod_parent/") && !strings.Contains(dir, "/unified/libpod_parent/") {
			s["cgroups"] = append(s["cgroups"], dir)
		}
	}
	for kind, args := range map[string]string{
		"links": "ip -o link", "addresses": "ip -o -4 addr", "routes": "ip -o route", "qdiscs": "tc qdisc", "rules": "iptables-save",
		"namespaces": "ls -A /run/netns", "locks": "ls -A /dev/shm",
	} {
		words := strings.Fields(args)
		out, _ := exec.Command(words[0], words[1:]...).Output() // a directory may be missing
		for line := range strings.Lines(string(out)) {
			s[kind] = append(s[kind], normalLine(kind, line))
		}
	}
	s["files"] = Files(t, dirs...)
	return s
}

// processes returns the numbers of all processes in their order. So the oldest process names a mount namespace.
func processes(t testing.TB) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// daemons are programs that run between containers.
var daemons = []string{"dockerd", "containerd", "docker-proxy", "bulkhead-engine", "qemu-system-x86_64"}

// normalLine leaves out numbers that change without a container.
func normalLine(kind, line string) string {
	line = strings.TrimSpace(strings.ReplaceAll(line, " linkdown", ""))
	switch kind {
	case "rules":
		if strings.HasPrefix(line, "#") {
			return ""
		}
		if before, _, counters := strings.Cut(line, " ["); counters {
			return before
		}
	case "links":
		if _, after, found := strings.Cut(line, ": "); found {
			name, _, _ := strings.Cut(after, ":")
			return name
		}
	}
	return line
}

// Files lists the files below directories that may be missing.
func Files(t testing.TB, dirs ...string) (found []string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			found = append(found, path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// ExpectNothingNew waits until the host has nothing that it did not have before. Earlier remainders may have gone. dirs are
// those of Take.
func (s Snapshot) ExpectNothingNew(ctx context.Context, t testing.TB, dirs ...string) {
	t.Helper()
	for {
		var left []string
		for kind, now := range Take(t, dirs...) {
			before := slices.Clone(s[kind])
			for _, one := range now {
				if i := slices.Index(before, one); i >= 0 {
					before = slices.Delete(before, i, i+1)
				} else {
					left = append(left, kind+": "+one)
				}
			}
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond): // the end of processes sends no event
		case <-ctx.Done():
			t.Fatalf("left on the host:\n%s", strings.Join(left, "\n"))
		}
	}
}
