package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// installer is an empty node and the files to install on it. Only the commands for the node are recorded instead of
// run.
type installer struct {
	from, host, calls string
	env               []string
}

func newInstaller(t *testing.T) *installer {
	t.Helper()
	if _, err := os.Stat("/bin/busybox"); err != nil {
		t.Fatalf("find busybox, which the image contains: %v", err)
	}
	dir := t.TempDir()
	i := &installer{from: filepath.Join(dir, "from"), host: filepath.Join(dir, "host"), calls: filepath.Join(dir, "calls")}
	for path, text := range map[string]string{
		"from/bin/bulkhead": "new", "from/libexec/bulkhead/bulkhead-engine": "engine",
		"from/lib/systemd/system/bulkhead-cri.service": "unit", "host/etc/hostname": "node", "host/usr/local/bin/other": "other",
		"host/usr/local/bin/bulkhead": "old",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Replace the script's function that enters the node with one that records its commands.
	text, err := os.ReadFile("install/install")
	if err != nil {
		t.Fatal(err)
	}
	const enters = `on() { nsenter --target 1 --mount --uts --ipc --net --pid -- "$@"; }`
	if strings.Count(string(text), enters) != 1 {
		t.Fatalf("the script must contain %s once", enters)
	}
	script := strings.Replace(string(text), enters, `on() { echo "$@" >>"$CALLS"; [ "$*" != "$FAIL" ]; }`, 1)
	if err := os.WriteFile(filepath.Join(dir, "install"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	i.env = []string{"FROM=" + i.from, "HOST=" + i.host, "CALLS=" + i.calls, "WAIT=no", "FAIL="}
	return i
}

func (i *installer) run(env ...string) (out string, calls []string, err error) {
	cmd := exec.Command(filepath.Join(filepath.Dir(i.from), "install"))
	cmd.Env = append(slices.Clone(i.env), env...)
	text, err := cmd.CombinedOutput()
	told, _ := os.ReadFile(i.calls)
	return string(text), strings.Split(strings.TrimSpace(string(told)), "\n"), err
}

// TestInstall: the installation replaces existing files and keeps other files. Then it installs packages and the
// service on the node. A second run works like the first.
func TestInstall(t *testing.T) {
	t.Parallel()
	i := newInstaller(t)
	old, err := os.Open(filepath.Join(i.host, "usr/local/bin/bulkhead")) // like a running program
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	want := []string{
		"/usr/local/share/bulkhead/setup run", "systemctl daemon-reload", "systemctl enable bulkhead-cri",
		"systemctl restart bulkhead-cri",
	}
	for range 2 {
		out, calls, err := i.run()
		if err != nil || !slices.Equal(calls, want) {
			t.Fatalf("%v: %s: %q", err, out, calls)
		}
		want = append(want, want...)
	}
	var files []string
	for path, text := range map[string]string{
		"bin/bulkhead": "new", "bin/other": "other", "libexec/bulkhead/bulkhead-engine": "engine",
		"lib/systemd/system/bulkhead-cri.service": "unit",
	} {
		path = filepath.Join(i.host, "usr/local", path)
		files = append(files, path)
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	all, err := exec.Command("find", filepath.Join(i.host, "usr"), "-type", "f").Output()
	if err != nil || len(strings.Fields(string(all))) != len(files) {
		t.Errorf("%v: there are more files: %s", err, all)
	}
	was := make([]byte, 8)
	if n, err := old.Read(was); err != nil || string(was[:n]) != "old" {
		t.Errorf("a running program was written to: %q, %v", was[:n], err)
	}
}

// TestInstallFails: a failure on the node ends the installation before a service starts.
func TestInstallFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env   []string
		calls int
		says  string
	}{
		"packages": {[]string{"FAIL=/usr/local/share/bulkhead/setup run"}, 1, ""},
		"service":  {[]string{"FAIL=systemctl enable bulkhead-cri"}, 3, ""},
		"no node":  {[]string{"HOST=/nonexistent"}, 0, "no node's root directory at /nonexistent"},
		"unknown":  {[]string{"SERVICE=sshd"}, 0, "SERVICE=sshd must be"},
	} {
		i := newInstaller(t)
		out, calls, err := i.run(c.env...)
		calls = slices.DeleteFunc(calls, func(s string) bool { return s == "" })
		if err == nil || len(calls) != c.calls || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v: %q: %s", name, err, calls, out)
		}
	}
	i := newInstaller(t)
	if out, calls, err := i.run("SERVICE=none", "PACKAGES=no"); err != nil || calls[0] != "" {
		t.Errorf("nothing but files: %v: %q: %s", err, calls, out)
	}
}

// TestDaemonSet: the installation runs only on selected nodes, and starts a service that exists.
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("kubernetes/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &set); err != nil {
		t.Fatal(err)
	}
	spec := set.Spec.Template.Spec
	if spec.NodeSelector["bulkhead.io/install"] != "yes" || len(spec.Containers) != 1 || spec.Containers[0].Image != "bulkhead-install" {
		t.Errorf("%+v", spec)
	}
	for _, v := range spec.Containers[0].Env {
		if _, err := os.Stat(filepath.Join("systemd", v.Value+".service")); v.Name == "SERVICE" && err != nil {
			t.Error(err)
		}
	}
}
