package deploy

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// built returns the path of the package that make test built, by the end of its name.
func built(t *testing.T, end string) string {
	t.Helper()
	packages, err := filepath.Glob("../build/packages/bulkhead*" + end)
	if err != nil || len(packages) != 1 {
		t.Fatalf("this test needs one package: run make package (%q, %v)", packages, err)
	}
	path, err := filepath.Abs(packages[0])
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// host is a copy of this host that a test may change.
type host struct {
	pid string
	ctx context.Context //nolint:containedctx // of the test
}

func newHost(t *testing.T, packages string) *host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("installs packages into a copy of this host: needs root")
	}
	image, err := filepath.Abs("../build/busybox.tar")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{ctx: testdeadline.Context(t, 10*time.Minute)}
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
		"sh", "testdata/host", t.TempDir(), packages, image)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and with it all processes in the copy
		_ = cmd.Wait()
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the copy of this host answers %q", line)
	}
	of := strconv.Itoa(cmd.Process.Pid)
	child, err := os.ReadFile("/proc/" + of + "/task/" + of + "/children")
	if err != nil {
		t.Fatal(err)
	}
	h.pid = strings.TrimSpace(string(child))
	return h
}

// as runs a script as a user, and returns all its output.
func (h *host) as(user, script string) (string, error) {
	home := "/root"
	args := []string{"-t", h.pid, "-m", "-p", "env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	if user != "root" {
		home = "/home/" + user
		args = append(args, "setpriv", "--reuid="+user, "--regid="+user, "--init-groups")
	}
	args = append(args, "env", "HOME="+home, "sh", "-c", "cd && "+script)
	out, err := exec.CommandContext(h.ctx, "nsenter", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// must runs a script and checks that its output matches a pattern.
func (h *host) must(t *testing.T, user, pattern, script string) string {
	t.Helper()
	began := time.Now()
	out, err := h.as(user, script)
	t.Logf("%.1f %s: %s", time.Since(began).Seconds(), user, script)
	if err != nil || !regexp.MustCompile(pattern).MatchString(out) {
		t.Fatalf("%s: %s: %v: %q, want %q", user, script, err, out, pattern)
	}
	return out
}

// TestPackage: a package is installed and used by root and another user. It is upgraded and removed while their
// pods run, and then purged.
func TestPackage(t *testing.T) {
	testturn.SkipUnless(t, 1, 3)
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	t.Parallel()
	deb := built(t, "_amd64.deb")
	h := newHost(t, filepath.Dir(deb))
	install := "dpkg -i /tmp/packages/" + filepath.Base(deb)
	h.must(t, "root", `Setting up bulkhead`, install)
	version := strings.Split(filepath.Base(deb), "_")[1]
	users := []string{"root", "alice"}
	for _, user := range users {
		h.must(t, user, regexp.QuoteMeta(version), "bulkhead version")
		h.must(t, user, `^$`, "bulkhead image load --quiet oci-archive:/tmp/image.tar localhost/busybox:demo >/dev/null")
		h.must(t, user, `^hello$`, "bulkhead run --rm --network none localhost/busybox:demo echo hello")
		h.must(t, user, ``, "bulkhead run -d --name stays --network none localhost/busybox:demo sleep 100000")
	}

	// A later version of the same files.
	h.must(t, "root", ``, `dpkg-deb -R /tmp/packages/*.deb /tmp/later && sed -i 's/^Version: .*/&.later/' /tmp/later/DEBIAN/control &&
		dpkg-deb -Znone -b /tmp/later /tmp/later.deb && rm -r /tmp/later`)
	h.must(t, "root", `Unpacking bulkhead \(.*\.later\) over`, "dpkg -i /tmp/later.deb")
	for _, user := range users {
		const exec = "bulkhead exec stays -- echo goes on"
		h.must(t, user, `^goes on$`, exec)
		engine := "pgrep -r R,S,D -u " + user + " -x bulkhead-engine" // zombies do not count, because no process 1 reaps in the copy
		h.must(t, user, `^goes on$`, "kill $("+engine+") && while "+engine+"; do sleep 0.1; done >/dev/null && "+exec)
		h.must(t, user, `^/usr/libexec/bulkhead/bulkhead-engine$`, "readlink /proc/$("+engine+")/exe")
	}

	const one = `a pod of (alice|root default/stays)\n`
	h.must(t, "root", `(?s)these pods keep running.*`+one+".*"+one+".*stay in /var/lib/bulkhead", "dpkg -r bulkhead")
	if got, _ := h.as("root", "pgrep -c qemu-system"); got != "2" {
		t.Errorf("after the removal %s VMs run, want 2", got)
	}
	h.must(t, "root", `^absent$`, "[ -e /usr/share/bulkhead ] || echo absent")
	h.must(t, "root", `stays, because`, "dpkg -P bulkhead && ls -d /var/lib/bulkhead/sandboxes")
	h.must(t, "root", ``, install) // after it the pods are found again
	for _, user := range users {
		h.must(t, user, `^found$`, "bulkhead exec stays -- echo found")
		h.must(t, user, ``, "bulkhead rm -f stays")
	}
	h.must(t, "root", ``, "dpkg -P bulkhead")
	h.must(t, "root", `^absent$`, "[ -e /var/lib/bulkhead ] || echo absent")
	h.must(t, "alice", ``, "ls .local/share/bulkhead/images")
}

// TestPackageControl: the package has the fields and files that dpkg reads and that matter to users of a
// distribution.
func TestPackageControl(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the package, which make test makes; it runs in the second pass")
	}
	t.Parallel()
	deb := built(t, "_amd64.deb")
	for field, want := range map[string]string{
		"Package": "bulkhead", "Architecture": "amd64", "Depends": "qemu-system-x86, passt", "Recommends": "", "Suggests": "", "Pre-Depends": "",
		"Version": strings.Split(filepath.Base(deb), "_")[1], "Section": "admin", "Priority": "optional",
	} {
		if got := in(t, ".", "dpkg-deb", "-f", deb, field); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
	var files []string
	for line := range strings.Lines(in(t, ".", "dpkg-deb", "-c", deb)) {
		f := strings.Fields(line)
		mode, owner, size, path := f[0], f[1], f[2], strings.TrimPrefix(f[5], ".")
		dir := mode[0] == 'd'
		program := strings.HasPrefix(path, "/usr/bin/") || strings.HasPrefix(path, "/usr/libexec/") || path == "/usr/share/bulkhead/setup"
		want := "-rw-r--r--"
		if dir {
			want = "drwxr-xr-x"
		} else if program {
			want = "-rwxr-xr-x"
		}
		if mode != want || owner != "root/root" || !dir && size == "0" || !strings.HasPrefix(path, "/usr/") || strings.Contains(path, "/local/") {
			t.Errorf("%s", line)
		}
		if !dir {
			files = append(files, path)
		}
	}
	for _, want := range []string{
		"/usr/bin/bulkhead", "/usr/bin/bulkhead-oci", "/usr/bin/containerd-shim-bulkhead-v2", "/usr/libexec/bulkhead/bulkhead-surrogate",
		"/usr/libexec/bulkhead/bulkhead-warm.so", "/usr/share/bulkhead/guest/bundle.json",
		"/usr/share/doc/bulkhead/copyright",
		"/usr/share/man/man1/bulkhead-run.1.gz", "/usr/share/bash-completion/completions/bulkhead", "/usr/share/zsh/vendor-completions/_bulkhead",
		"/usr/share/fish/vendor_completions.d/bulkhead.fish", "/usr/lib/systemd/system/bulkhead-cri.service",
		"/usr/share/man/man1/bulkhead-oci-create.1.gz", "/usr/share/doc/bulkhead/examples/hello.yaml",
		"/usr/share/doc/bulkhead/examples/containers.conf", "/usr/share/doc/bulkhead/examples/containerd.toml",
		"/usr/share/doc/bulkhead/examples/containerd-2.toml",
		"/usr/share/doc/bulkhead/examples/daemon.json", "/usr/share/bulkhead/config.toml",
	} {
		if !slices.Contains(files, want) {
			t.Errorf("it lacks %s", want)
		}
	}
	dir := t.TempDir()
	in(t, ".", "dpkg-deb", "-R", deb, dir)
	in(t, dir, "md5sum", "--quiet", "-c", "DEBIAN/md5sums")
	in(t, filepath.Dir(deb), "sha256sum", "--quiet", "-c", "SHA256SUMS")
	u := unit(t, filepath.Join(dir, "usr/lib/systemd/system/bulkhead-cri.service"))
	if got := u["[Service]ExecStart"]; !slices.Equal(got, []string{"/usr/bin/bulkhead cri"}) {
		t.Errorf("command of the unit: %q", got)
	}
}
