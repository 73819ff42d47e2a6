package cli

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// refused runs a command that must fail with one line that contains all of want.
func (u *user) refused(t *testing.T, args []string, want ...string) {
	t.Helper()
	_, stderr, code := u.run("", args...)
	for _, text := range want {
		if code == 0 || !strings.HasPrefix(stderr, "bulkhead: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, text) {
			t.Errorf("%v: exit code %d, %q does not contain %q", args, code, stderr, text)
		}
	}
}

// copies copies a tree with links, modes and times to a volume of the pod and back, as files and as a tar stream.
func (u *user) copies(t *testing.T) {
	dir := u.dir + "/cp"
	u.shell(t, `mkdir -p "$1/src/sub" &&
		cd "$1" &&
		echo content >src/a &&
		chmod 750 src/a &&
		ln -s ../a src/sub/l &&
		ln src/a src/b &&
		touch -d 2001-02-03 src/a &&
		mkfifo src/pipe`, dir)
	if _, stderr, code := u.run("", "cp", dir+"/src", "web:/data"); code != 0 || !strings.Contains(stderr, "left out") {
		t.Errorf("cp to a directory: exit code %d, %s", code, stderr)
	}
	u.must("", "cp", dir+"/src/.", "web:/data/as")
	u.must("", "cp", dir+"/src/a", "web:/data/file")
	u.must("", "cp", dir+"/src/a", "web:/etc/hosts") // a separate mount
	const look = `cd /data
		for f in src/a as/a file; do stat -c '%a %Y %h' $f; done
		readlink src/sub/l
		readlink as/sub/l
		cat src/sub/l as/b file /etc/hosts`
	want := "750 981158400 2\n750 981158400 2\n750 981158400 1\n../a\n../a\n" + strings.Repeat("content\n", 4)
	if out := u.must("", "exec", "web", "--", "sh", "-c", look); out != want {
		t.Errorf("copied to the pod: %q, want %q", out, want)
	}
	u.must("", "cp", "web:/data/src", dir+"/back")
	u.must("", "cp", "web:data/src", dir+"/back") // into it, because it exists
	for _, back := range []string{dir + "/back", dir + "/back/src"} {
		info, err := os.Stat(back + "/a")
		other, err2 := os.Stat(back + "/b")
		link, err3 := os.Readlink(back + "/sub/l")
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o750 || info.ModTime().Unix() != 981158400 || !os.SameFile(info, other) || link != "../a" {
			t.Errorf("copied back: %v, %v, %q", info.Mode(), info.ModTime(), link)
		}
	}
	stream := u.must("", "cp", "web:/data/src", "-")
	var names []string
	for r := tar.NewReader(strings.NewReader(stream)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if len(names) != 5 || names[0] != "src/" {
		t.Errorf("as a tar stream: %q", names)
	}
	u.must(stream, "cp", "-", "web:/tmp")
	if out := u.must("", "exec", "web", "--", "cat", "/tmp/src/sub/l"); out != "content\n" {
		t.Errorf("from a tar stream: %q", out)
	}
	// Files outside of the copy must not arrive.
	u.must("", "exec", "web", "--", "sh", "-c", `mkdir /bad &&
		ln -s /etc/passwd /bad/abs &&
		ln -s ../../up /bad/up &&
		mknod /bad/null c 1 3 &&
		ln -s . /bad/ok`)
	_, stderr, code := u.run("", "cp", "web:/bad", dir+"/bad")
	if left, err := os.ReadDir(dir + "/bad"); err != nil || len(left) != 1 || left[0].Name() != "ok" ||
		code != 0 || strings.Count(stderr, "left out") != 3 {
		t.Errorf("cp of bad files: %v, %v, exit code %d, %s", left, err, code, stderr)
	}
	u.refused(t, []string{"cp", "web:/nosuch", dir}, "/nosuch", "not found")
	u.refused(t, []string{"cp", dir + "/src/a", "web:/no/such/file"}, "/no/such/", "directory")
	u.refused(t, []string{"cp", dir + "/src/sub", "web:/data/file"}, "bulkhead: copy to web:/data/file: \"sub\"", "not a directory")
	u.refused(t, []string{"cp", dir + "/nosuch", "web:/"}, "nosuch", "no such file")
	u.refused(t, []string{"cp", "a", "b"}, "POD:PATH")
	u.refused(t, []string{"cp", "web:/a", "web:/b"}, "between two pods")
	u.refused(t, []string{"cp", "-c", "nosuch", "web:/a", dir}, "nosuch", "[web side]")
}

// shell runs a script on the host as the user.
func (u *user) shell(t *testing.T, script string, args ...string) {
	t.Helper()
	args = append(append(append([]string{}, u.prefix...), "sh", "-c", script, "sh"), args...)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// forwarded requests the pod's page through a port's name, and a closed port. Its refusal is reported and ends
// nothing.
func (u *user) forwarded(t *testing.T) {
	b := u.start(t, "port-forward", "web", ":http", ":81")
	port := b.expect(t, `Forwarding from 127\.0\.0\.1:(\d+) -> 80\n`)[1]
	closed := b.expect(t, `Forwarding from 127\.0\.0\.1:(\d+) -> 81\n`)[1]
	for range 3 {
		conn, err := net.Dial("tcp", "127.0.0.1:"+closed)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(conn); len(data) > 0 {
			t.Errorf("a closed port: %q, %v", data, err)
		}
		conn.Close()
	}
	b.expect(t, `-> 81: .*connection refused\n`)
	for range 3 {
		var n int
		if _, err := fmt.Sscan(port, &n); err != nil {
			t.Fatal(err)
		}
		if page, err := fetchPage(n); err != nil || page != "page\n" {
			t.Errorf("the forwarded port: %q, %v", page, err)
		}
	}
	u.refused(t, []string{"port-forward", "web", port + ":80"}, "address already in use", "choose another")
	u.refused(t, []string{"port-forward", "web", "nosuch"}, "nosuch", "[http]")
	b.signal(t, syscall.SIGINT, 0)
}

// attached attaches to the first process of a container, and detaches.
func (u *user) attached(t *testing.T) {
	b := u.start(t, "attach", "-i", "-c", "side", "web")
	if _, err := io.WriteString(b.in, "word\n"); err != nil {
		t.Fatal(err)
	}
	b.expect(t, `heard word\n`)
	b.signal(t, syscall.SIGINT, -1)
	u.refused(t, []string{"attach", "-i", "web"}, "stdin: true")
	if out := u.must("", "ps", "-o", "jsonpath={.items[0].ready}"); out != "2" {
		t.Errorf("containers that are left: %s", out)
	}
}

// hungUp ends commands before their processes in the pod have ended. These must end too.
func (u *user) hungUp(t *testing.T) {
	b := u.start(t, "exec", "web", "--", "sh", "-c", "echo begun; exec yes >/dev/null")
	b.expect(t, `begun\n`)
	b.signal(t, syscall.SIGINT, -1)
	b = u.start(t, "exec", "-i", "web", "--", "sh", "-c", "echo deaf; exec tail -f /etc/hosts")
	b.expect(t, `deaf\n`)
	go func() { _, _ = io.Copy(b.in, endless{}) }() // ends with the command
	b.signal(t, syscall.SIGINT, -1)
	u.must("", "exec", "web", "--", "sh", "-c", "while grep -qE '^(yes|tail)$' /proc/[0-9]*/comm; do sleep 0.1; done")
}

// endless is input without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// shown requests a pod's usage, events and YAML in all formats.
func (u *user) shown(t *testing.T) {
	var stats []api.PodStats
	if err := json.Unmarshal([]byte(u.must("", "stats", "-o", "json", "web")), &stats); err != nil {
		t.Fatal(err)
	}
	if len(stats) != 1 || stats[0].CPU == 0 || stats[0].Memory == 0 || stats[0].MemoryLimit < stats[0].Memory ||
		len(stats[0].Containers) != 2 || stats[0].Disk.In == 0 || stats[0].PIDs < 2 {
		t.Errorf("stats: %+v", stats)
	}
	used := regexp.MustCompile(`(?m)^web +\d+\.\d +\S+ [kM]B / \S+ [MG]B +\S+ +\S+ MB `)
	if out := u.must("", "stats", "--no-stream"); !used.MatchString(out) {
		t.Errorf("stats: %s", out)
	}
	if out := u.must("", "top"); !strings.Contains(out, "POD / CONTAINER") || !strings.Contains(out, "   side ") {
		t.Errorf("top without a terminal: %s", out)
	}
	events := u.must("", "events", "web")
	if at := strings.Index(events, "Pulled"); at < 0 ||
		!strings.Contains(events[at:], "Created") || !strings.Contains(events[at:], "Started") {
		t.Errorf("events: %s", events)
	}
	if out := u.must("", "events", "-o", "jsonpath={.items[0].involvedObject.name}"); out != "web" {
		t.Errorf("events as jsonpath: %s", out)
	}
	b := u.start(t, "events", "-w", "-o", "json")
	b.expect(t, `"reason": "Started"`)
	b.signal(t, syscall.SIGINT, -1)
	yaml := u.must("", "kube", "generate", "web")
	for _, added := range []string{"uid", "status", "creationTimestamp", "terminationMessagePath", "restartPolicy", "namespace"} {
		if strings.Contains(yaml, added) {
			t.Errorf("kube generate: %s is not the user's: %s", added, yaml)
		}
	}
	renamed := strings.Replace(yaml, "name: web\nspec", "name: other\nspec", 1)
	u.must(renamed, "run", "-d", "--quiet", "-")
	if out := u.must("", "kube", "generate", "other"); out != renamed {
		t.Errorf("run again: %s\nwas %s", out, renamed)
	}
	u.must("", "rm", "-f", "pod/other")
	if out := u.must("", "ps", "-o", "name"); out != "pod/web\n" {
		t.Errorf("ps -o name: %q", out)
	}
	if out := u.must("", "ps", "-o", "wide"); !strings.HasPrefix(out, "NAMESPACE") || !strings.Contains(out, " SANDBOX ") {
		t.Errorf("ps -o wide: %s", out)
	}
	u.refused(t, []string{"ps", "-o", "xml"}, "wide, name or jsonpath")
	u.refused(t, []string{"ps", "-o", "jsonpath={.items["}, "jsonpath")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"logs", "w"}, "web\tRunning"},
		{[]string{"image", "rm", ""}, busybox},
		{[]string{"cp", ""}, "web:"},
		{[]string{"attach", "web", "-c", ""}, "side"},
	} {
		out := u.must("", append([]string{"__complete"}, tc.args...)...)
		if !strings.Contains(out, tc.want) {
			t.Errorf("completion of %v: %q", tc.args, out)
		}
	}
}

// again checks the output of a restarted container.
func (u *user) again(t *testing.T) {
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - name: c
    image: localhost/busybox:test
    volumeMounts: [{name: v, mountPath: /v}]
    command:
    - sh
    - -c
    - |
      if [ -e /v/ran ]; then
        for i in 1 2 3; do echo second $i; done
        exec sleep 1000
      fi
      touch /v/ran
      echo first
      exit 1
`
	u.refused(t, []string{"logs", "-p", "web"}, "restarted")
	u.must(pod, "run", "-d", "--quiet", "-")
	follow := u.start(t, "logs", "-f", "again")
	follow.expect(t, `second 3\n`)
	for _, tc := range []struct{ args, want string }{
		{"-p", "first\n"},
		{"", "second 1\nsecond 2\nsecond 3\n"},
		{"--tail 1", "second 3\n"},
		{"--tail 0", ""},
		{"--since 1h --tail 2", "second 2\nsecond 3\n"},
		{"--since-time 2100-01-01T00:00:00Z", ""},
		{"--prefix --tail 1", "[pod/again/c] second 3\n"},
	} {
		if out := u.must("", append([]string{"logs", "again"}, strings.Fields(tc.args)...)...); out != tc.want {
			t.Errorf("logs %s: %q, want %q", tc.args, out, tc.want)
		}
	}
	stamped := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S{18}Z second 3\n$`)
	if out := u.must("", "logs", "--timestamps", "--tail", "1", "again", "c"); !stamped.MatchString(out) {
		t.Errorf("logs --timestamps: %q", out)
	}
	if out := u.must("", "events", "again"); !strings.Contains(out, "(x2 over ") {
		t.Errorf("events that were counted: %s", out)
	}
	u.must("", "rm", "-f", "again")
	_ = follow.cmd.Wait() // its pod is gone
}

// pruned checks images and templates for a user without pods.
func (u *user) pruned(t *testing.T) {
	if out := u.must("", "system", "df"); !regexp.MustCompile(`Images +1 +0 .*\nTemplates +1 +0 `).MatchString(out) {
		t.Errorf("system df: %s", out)
	}
	if out := u.must("", "image", "inspect", busybox, "-o", "jsonpath={.items[0].config.architecture}"); out != "amd64" {
		t.Errorf("image inspect: %q", out)
	}
	u.must("", "image", "tag", busybox, "again:1", "registry.test/again")
	u.refused(t, []string{"image", "tag", "nosuch", "again:2"}, "nosuch", "image ls")
	u.refused(t, []string{"image", "tag", busybox}, "NAME")
	if out := u.must("", "image", "ls", "-o", "name"); out != "localhost/again:1\n"+busybox+"\nregistry.test/again:latest\n" {
		t.Errorf("image ls after tag: %q", out)
	}
	u.must("", "image", "rm", "again:1", "registry.test/again")
	printed, written := filepath.Join(u.dir, "saved.tar"), filepath.Join(u.dir, "data", "saved.oci")
	if err := os.WriteFile(printed, []byte(u.must("", "image", "save", busybox)), 0o644); err != nil {
		t.Error(err)
	}
	u.must("", "image", "save", "-o", written, "--format", "oci-archive", busybox)
	u.must("", "image", "load", "--quiet", "--for", "node", printed, "theirs:1")
	for whose, want := range map[string]string{"node": "localhost/theirs:1\n", "cri": ""} {
		if out := u.must("", "image", "ls", "--for", whose, "-o", "name"); out != want {
			t.Errorf("image ls --for %s: %q", whose, out)
		}
	}
	u.refused(t, []string{"image", "rm", "theirs:1"}, "theirs:1", "image ls")
	u.must("", "image", "rm", "--for", "node", "theirs:1")
	u.refused(t, []string{"image", "ls", "--for", "kubelet"}, "kubelet", "cri or node")
	for _, path := range []string{printed, written} {
		u.must("", "image", "load", "--quiet", path, "saved:1")
		u.must("", "image", "rm", "saved:1")
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	u.refused(t, []string{"image", "save", "-o", "/nonexistent/x", busybox}, "/nonexistent", "no such file")
	u.refused(t, []string{"image", "save", "--format", "zip", busybox}, "docker-archive")
	u.refused(t, []string{"image", "prune", "--all"}, "--force")
	u.refused(t, []string{"image", "inspect", "nosuch"}, "nosuch", "image ls")
	if u.prefix == nil { // a template for another kernel or QEMU
		key := u.must("", "template", "ls", "-o", "jsonpath={.items[0].key}")
		u.shell(t, `cd "$1/data/templates" &&
			new=$(echo "$2" | tr 0-9 1-90) &&
			cp -r "$2" "$new" &&
			sed -i "s/$2/$new/" "$new/template.json"`, u.dir, key)
		if out := u.must("", "system", "prune", "--force"); !strings.HasPrefix(out, "template ") || strings.Count(out, "\n") != 2 {
			t.Errorf("system prune of an old template: %q", out)
		}
		u.must("", "template", "rm", key[:12])
	}
	if out := u.must("", "image", "prune", "--force"); out != "freed 0 B\n" {
		t.Errorf("image prune of an image with a name: %q", out)
	}
	u.must(once("ended", "true"), "run", "--quiet", "-")
	if out := u.must("", "system", "prune", "--force"); !strings.HasPrefix(out, "pod default/ended\nfreed ") {
		t.Errorf("system prune: %q", out)
	}
	if out := u.must("", "system", "prune", "--all", "--force"); !strings.HasPrefix(out, "image "+busybox+"\ntemplate ") {
		t.Errorf("system prune --all: %q", out)
	}
	if out := u.must("", "image", "ls", "-o", "name"); out != "" {
		t.Errorf("images are left: %q", out)
	}
	u.loadBusyboxAgain()
}
