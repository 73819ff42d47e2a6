package attach

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/share"
)

// attacher is the argument that marks the process of package attach among this test's children.
const attacher = "ATTACH_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(attacher) != "" {
		if err := Main(os.Stdin); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// namespace starts a process with mounts of its own, and an empty directory in the place of a server's.
func namespace(t *testing.T) (pid int) {
	t.Helper()
	const script = "mount -t tmpfs none /proc/sys/fs && cd /proc/sys/fs && mkdir shares old && pivot_root . old && echo there && read line"
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // they do not propagate to the host
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "there\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd.Process.Pid
}

// attach runs the process.
func attach(t *testing.T, pid int, trees ...Tree) error {
	t.Helper()
	ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	cmd := exec.CommandContext(testdeadline.Context(t, 10*time.Second), os.Args[0])
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), attacher+"=1"), []*os.File{ns}
	for i := range trees {
		fd, err := unix.Open(trees[i].Path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), trees[i].Path)
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		trees[i].FD = 2 + len(cmd.ExtraFiles)
	}
	request, err := json.Marshal(Request{Namespace: 3, Trees: trees})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	return cmd.Run()
}

// TestAttach: an attached tree is there, with the requested options and without its parents, also after a second call.
func TestAttach(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"tree/sub", "tree/hidden/secret", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	pid := namespace(t)
	name := func(path string, readOnly bool) string { return share.Name(path, readOnly, false, false, share.Auto) }
	tree, ro, one := name("tree", false), name("tree", true), name("file", false)
	trees := []Tree{
		{Name: tree, Path: dir + "/tree", Masks: []string{"hidden", "not/there"}},
		{Name: ro, Path: dir + "/tree", ReadOnly: true}, {Name: one, Path: file},
	}
	for range 2 {
		if err := attach(t, pid, trees...); err != nil {
			t.Fatal(err)
		}
	}
	at := "/proc/" + strconv.Itoa(pid) + "/root" + share.Dir
	for path, want := range map[string]string{
		"":   strings.Join(slices.Sorted(slices.Values([]string{tree, ro, one})), " "),
		tree: "hidden sub", tree + "/hidden": "", ro + "/hidden": "secret",
	} {
		if got := strings.Join(list(t, filepath.Join(at, path)), " "); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(at, one)); err != nil || string(text) != "text" {
		t.Errorf("the file: %q, %v", text, err)
	}
	for path, want := range map[string]error{tree + "/new": nil, ro + "/new2": unix.EROFS, tree + "/hidden/new": unix.EROFS} {
		if err := unix.Mkdir(filepath.Join(at, path), 0o755); !errors.Is(err, want) {
			t.Errorf("make %s: %v, want %v", path, err, want)
		}
	}
	mounts, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if !strings.Contains(line, tree) && !strings.Contains(line, ro) && !strings.Contains(line, one) {
			continue
		}
		for _, option := range []string{"nosuid", "nodev", "noexec", "nosymfollow"} {
			if !strings.Contains(line, option) {
				t.Errorf("without %s: %s", option, line)
			}
		}
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
