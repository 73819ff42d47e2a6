package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed returns the lines of files: mode, source, directory.
func listed(t *testing.T) (lines [][]string) {
	t.Helper()
	text, err := os.ReadFile("files")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] != "#" {
			lines = append(lines, fields)
		} else if line[0] != '#' {
			t.Errorf("%q", line)
		}
	}
	return lines
}

// TestFilesList: every program is installed, except the guest's programs and the one that builds the guest.
func TestFilesList(t *testing.T) {
	t.Parallel()
	var sources []string
	for _, line := range listed(t) {
		sources = append(sources, line[1])
	}
	programs, err := filepath.Glob("../cmd/*")
	if err != nil || len(programs) == 0 {
		t.Fatal(err)
	}
	for _, p := range programs {
		name := filepath.Base(p)
		if inside := name == "bulkhead-agent" || name == "bulkhead-guest"; slices.Contains(sources, "bin/"+name) == inside {
			t.Errorf("bin/%s: is listed but must not be, or the other way round", name)
		}
	}
}

// tree creates a built checkout: the script, the list, and an empty file for each line.
func tree(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	for _, name := range []string{"hack/install", "deploy/files"} {
		copyFile(t, "../"+name, filepath.Join(top, name))
	}
	for _, line := range listed(t) {
		copyFile(t, "systemd/bulkhead-cri.service", filepath.Join(top, strings.ReplaceAll(line[1], "*", "bulkhead")))
	}
	return top
}

// TestUninstall: a removal undoes the installation and keeps other files.
func TestUninstall(t *testing.T) {
	t.Parallel()
	top, root := tree(t), t.TempDir()
	copyFile(t, "files", filepath.Join(root, "opt/b/share/man/man1/other.1"))
	in(t, root, "mkdir", "opt/b/bin")
	all := func() string { return in(t, root, "find", ".", "-printf", "%p %m\n") }
	before := all()
	in(t, top, "hack/install", "install", "/opt/b", root)
	for _, line := range listed(t) {
		path := filepath.Join(root, "opt/b", line[2], strings.ReplaceAll(filepath.Base(line[1]), "*", "bulkhead"))
		if info, err := os.Stat(path); err != nil || "0"+in(t, root, "stat", "-c", "%a", path) != line[0] || !info.Mode().IsRegular() {
			t.Errorf("%s: %v", path, err)
		}
	}
	u := unit(t, filepath.Join(root, "opt/b/lib/systemd/system/bulkhead.service"))
	if got := u["[Service]ExecStart"]; !slices.Equal(got, []string{"/opt/b/bin/bulkhead cri"}) {
		t.Errorf("command of the unit: %q", got)
	}
	first := all()
	in(t, top, "hack/install", "install", "/opt/b", root)
	if got := all(); got != first {
		t.Errorf("another installation over it makes %s of %s", got, first)
	}
	if err := os.WriteFile(filepath.Join(top, "deploy/files"), []byte("0755 bin/bulkhead bin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in(t, top, "hack/install", "install", "/opt/b", root) // of an earlier version with one file
	if _, err := os.Stat(filepath.Join(root, "opt/b/libexec")); !os.IsNotExist(err) {
		t.Errorf("files of the earlier version remain: %v", err)
	}
	in(t, top, "hack/install", "uninstall", "/opt/b", root)
	if got := all(); got != before {
		t.Errorf("the removal leaves %s of %s", got, before)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(top, "hack/install"), "uninstall", "/opt/b", root).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nothing is installed in "+root+"/opt/b") {
		t.Errorf("a second removal: %v: %s", err, out)
	}
}
