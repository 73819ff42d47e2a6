package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/bulkhead-project/bulkhead/internal/testimage"
)

// badInput is a command that has to fail: with a code, and with one line that
// names what is wrong and what to do about it.
type badInput struct {
	name  string
	stdin string
	args  []string // run --rm - without any
	code  int
	want  []string
}

// check runs the command, and looks at what it said and left behind.
func (b badInput) check(t *testing.T, u *user) {
	t.Helper()
	args := b.args
	if args == nil {
		args = []string{"run", "--rm", "--quiet", "-"}
	}
	out, stderr, code := u.run(b.stdin, args...)
	if code != b.code || out != "" {
		t.Errorf("exit code %d, want %d; stdout %q", code, b.code, out)
	}
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if len(lines) > 1 && strings.HasPrefix(lines[1], "(again with --detail") {
		lines = lines[:1]
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "bulkhead: ") {
		t.Errorf("not one line: %q", stderr)
	}
	for _, want := range b.want {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q does not tell %q", lines[0], want)
		}
	}
	u.nothingOf(t)
}

// nothingOf looks for what a failed command may leave: pods, sandboxes, their
// processes, unfinished images.
func (u *user) nothingOf(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{"data/pods/*", "data/sandboxes/*", "data/names/run/*", "data/images/tmp/*", "state/run/????????????????????????????????????????????????????????????????", "state/p/*"} {
		left, err := filepath.Glob(filepath.Join(u.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	for _, p := range processes(u.dir) {
		if strings.Contains(p, "qemu-system") || strings.Contains(p, "bulkhead-shim") {
			t.Errorf("left running: %s", p)
		}
	}
}

// manifest is a pod of one container with more fields.
func manifest(image, command, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: %s
    command: %s
%s`, image, command, more)
}

const busybox = "localhost/busybox:test"

// noPool keeps no machine ready: every machine is then a pod's.
const noPool = "BULKHEAD_POOL=0"

func TestBadInput(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	u := newUser(t, nil, noPool)
	u.loadBusybox()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	text := filepath.Join(u.dir, "text")
	if err := os.WriteFile(text, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	const sleep, yes = "[sleep, '1000']", "['true']"
	for _, tc := range []badInput{
		{name: "not YAML", stdin: manifest(busybox, yes, "    env: [{name: A\n"), code: 125, want: []string{"-:10: not YAML"}},
		{name: "empty", stdin: "# nothing\n", code: 125, want: []string{"no pod in it"}},
		{name: "another kind", stdin: "apiVersion: batch/v1\nkind: CronJob\n", code: 125, want: []string{"-:2:", "CronJob", "make a Job of its spec.jobTemplate.spec"}},
		{name: "unknown fields", stdin: manifest(busybox, yes, "    comand: [x]\n    imag: y\n"), code: 125,
			want: []string{"-:10: spec.containers[0].comand: unknown field", "-:11: spec.containers[0].imag: unknown field"}},
		{name: "a field that is not honoured", stdin: manifest(busybox, yes, "  volumes: [{name: v, hostPath: {path: /}}]\n"), code: 125,
			want: []string{"-:10: spec.volumes[0].hostPath", "not honoured yet"}},
		{name: "an unknown capability", stdin: manifest(busybox, yes, "    securityContext: {capabilities: {add: [FLY]}}\n"), code: 125,
			want: []string{"capabilities.add[0]", `"FLY" is not a capability`}},
		{name: "no file", args: []string{"run", "/no/such.yaml"}, code: 125, want: []string{"/no/such.yaml: no such file"}},
		{name: "no argument", args: []string{"run"}, code: 125, want: []string{"FILE or IMAGE is missing", "bulkhead run --help"}},
		{name: "unknown flag", args: []string{"ps", "--nosuch"}, code: 1, want: []string{"--nosuch", "bulkhead ps --help"}},
		{name: "unknown command", args: []string{"image", "nosuch"}, code: 1, want: []string{`unknown command "nosuch"`, "bulkhead image --help"}},
		{name: "unknown network", stdin: manifest(busybox, yes, ""), args: []string{"run", "--network", "host", "-"}, code: 125, want: []string{`--network "host": use user or none`}},
		{name: "unknown image", stdin: manifest("localhost/nosuch:test", yes, ""), code: 125, want: []string{"localhost/nosuch:test", "bulkhead image load"}},
		{name: "image by its policy never pulled", stdin: manifest("localhost/nosuch:test", yes, "    imagePullPolicy: Never\n"), code: 125, want: []string{"localhost/nosuch:test", "Never"}},
		{name: "not an image's name", stdin: manifest("UPPER:CASE:x", yes, ""), code: 125, want: []string{"UPPER:CASE:x"}},
		{name: "not an archive", args: []string{"image", "load", "--quiet", "docker-archive:" + text}, code: 1, want: []string{text, "invalid"}},
		{name: "no layout", args: []string{"image", "load", "--quiet", "oci:/no/such", "x"}, code: 1, want: []string{"oci:/no/such", "no such file"}},
		{name: "no file", args: []string{"image", "load", "--quiet", "nosuch.tar"}, code: 1, want: []string{"nosuch.tar", "no such file"}},
		{name: "no image", args: []string{"image", "load", "--quiet", text}, code: 1, want: []string{text, "invalid image", "tar"}},
		{name: "more memory than the host has", stdin: manifest(busybox, yes, "    resources: {limits: {memory: 9Ti}}\n"), code: 125,
			want: []string{"MiB of memory, the host has", "lower its limits"}},
		{name: "more CPUs than the host has", stdin: manifest(busybox, yes, "    resources: {limits: {cpu: 500}}\n"), code: 125,
			want: []string{"500 CPUs, the host has", "lower its limits"}},
		{name: "a port in use", stdin: manifest(busybox, sleep, ""), args: []string{"run", "--quiet", "-p", fmt.Sprintf("%d:80", port), "-"}, code: 125,
			want: []string{fmt.Sprintf("127.0.0.1:%d: port is in use", port), "choose another"}},
		{name: "a port of the manifest in use", stdin: manifest(busybox, sleep, fmt.Sprintf("    ports: [{containerPort: 80, hostPort: %d}]\n", port)), code: 125,
			want: []string{fmt.Sprintf("127.0.0.1:%d: port is in use", port)}},
		{name: "not a port", stdin: manifest(busybox, yes, ""), args: []string{"run", "-p", "http", "-"}, code: 125, want: []string{`port "http"`, "[IP:]HOST:POD"}},
		{name: "a missing command", stdin: manifest(busybox, "[/no/such, x]", ""), code: 127, want: []string{"container c", "`/no/such` not found", "check its command"}},
		{name: "a command that is no program", stdin: manifest(busybox, "[/etc/passwd]", ""), code: 126, want: []string{"container c", "Permission denied", "check its command"}},
		{name: "a directory for a command", stdin: manifest(busybox, "[/etc]", ""), code: 126, want: []string{"container c", "check its command"}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, u) })
	}
	t.Run("exec", func(t *testing.T) { testBadExec(t, u) })
}

// testBadExec is of what has no effect on the pod that it is asked of.
func testBadExec(t *testing.T, u *user) {
	u.must(manifest(busybox, "[sleep, '1000']", ""), "run", "-d", "--quiet", "-")
	u.must(strings.Replace(manifest(busybox, "[sleep, '1000']", ""), "bad", "badly", 1), "run", "-d", "--quiet", "-")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"exec", "bad", "nosuch"}, 127, "`nosuch` not found"},
		{[]string{"exec", "bad", "/etc/passwd"}, 126, "Permission denied"},
		{[]string{"exec", "bad", "sh", "-c", "kill -9 $$"}, 137, ""},
		{[]string{"exec", "-c", "nosuch", "bad", "true"}, 125, `container "nosuch" of pod default/bad: not found: it has [c]`},
		{[]string{"exec", "-t", "bad", "sh"}, 125, "-t needs a terminal"},
		{[]string{"exec", "bad"}, 125, "COMMAND is missing"},
		{[]string{"exec", "nosuch", "true"}, 125, "bulkhead ps lists the pods"},
		{[]string{"exec", "ba", "true"}, 125, "ambiguous: it may be default/bad or default/badly"},
		{[]string{"exec", "badl", "true"}, 0, ""},
		{[]string{"rm", "bad"}, 1, "pod default/bad runs: stop it first, or give --force"},
		{[]string{"start", "bad"}, 1, "runs already"},
		{[]string{"logs", "-c", "nosuch", "bad"}, 1, "it has [c]"},
		{[]string{"ps", "-o", "xml"}, 1, "wide, name or jsonpath=TEMPLATE"},
	} {
		_, stderr, code := u.run("", tc.args...)
		if code != tc.code || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") > 1 || tc.want == "" && stderr != "" {
			t.Errorf("%v: exit code %d, want %d; %q, want %q", tc.args, code, tc.code, stderr, tc.want)
		}
	}
	if _, stderr, code := u.run(manifest(busybox, "['true']", ""), "run", "-d", "-"); code != 125 || !strings.Contains(stderr, "exists already: remove it first") {
		t.Errorf("a second pod of a name: exit code %d, %q", code, stderr)
	}
	u.must("", "rm", "-f", "--all")
	u.nothingOf(t)
}

// TestBadRegistry is of registries that refuse, vanish, or do not speak TLS.
func TestBadRegistry(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the programs; make test runs it in its second pass")
	}
	closed := testimage.Registry(t, testimage.BasicAuth("ann", "secret"))
	var serving atomic.Bool
	serving.Store(true)
	gone := testimage.Registry(t, testimage.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/sha256") && r.Method == http.MethodGet && !serving.Load() {
				cutOff{w}.serve(next, r)
			}
			next.ServeHTTP(w, r)
		})
	}))
	secret, _ := closed.Push(t, "secret:1", testimage.BusyboxImage(t))
	half, _ := gone.Push(t, "half:1", large(t))
	serving.Store(false)

	u := newUser(t, nil, noPool)
	conf := filepath.Join(u.dir, "registries.conf")
	text := ""
	for _, host := range []string{closed.Host, gone.Host} {
		text += fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", host)
	}
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	u.env = append(u.env, "CONTAINERS_REGISTRIES_CONF="+conf, "REGISTRY_AUTH_FILE="+u.dir+"/auth.json")
	login := []string{"login", "-u", "ann", "--password-stdin", closed.Host}
	for _, tc := range []badInput{
		{name: "no credentials", args: []string{"image", "pull", "--quiet", secret}, code: 1, want: []string{"refused access", "bulkhead login " + closed.Host}},
		{name: "no credentials for a pod", stdin: manifest(secret, "['true']", ""), code: 125, want: []string{"refused access", "bulkhead login " + closed.Host}},
		{name: "wrong credentials", stdin: "wrong", args: login, code: 1, want: []string{"refused access"}},
		{name: "no such image", args: []string{"image", "pull", "--quiet", gone.Host + "/nosuch:1"}, code: 1, want: []string{"image not found", "check its name and tag"}},
		{name: "gone in mid-pull", args: []string{"image", "pull", "--quiet", half}, code: 1, want: []string{half, "registry unavailable"}},
		{name: "gone in mid-pull for a pod", stdin: manifest(half, "['true']", ""), code: 125, want: []string{half, "registry unavailable"}},
		{name: "nobody there", args: []string{"image", "pull", "--quiet", "127.0.0.1:1/x:1"}, code: 1, want: []string{"registry unavailable", "connection refused"}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, u) })
	}
	if out, stderr, code := u.run("secret\n", login...); code != 0 || out != "Login succeeded\n" {
		t.Errorf("login: exit code %d, %q %q", code, out, stderr)
	}
	u.must("", "image", "pull", "--quiet", secret)
	if out := u.must("", "image", "ls"); !strings.Contains(out, closed.Host+"/secret:1") {
		t.Errorf("image ls: %s", out)
	}
}

// cutOff serves half of an answer and then breaks the connection.
type cutOff struct{ http.ResponseWriter }

func (c cutOff) serve(next http.Handler, r *http.Request) {
	next.ServeHTTP(&halfWriter{ResponseWriter: c.ResponseWriter, left: 1 << 20}, r)
	panic(http.ErrAbortHandler)
}

type halfWriter struct {
	http.ResponseWriter
	left int
}

func (h *halfWriter) Write(b []byte) (int, error) {
	if len(b) > h.left {
		_, _ = h.ResponseWriter.Write(b[:h.left])
		_ = http.NewResponseController(h.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	h.left -= len(b)
	return h.ResponseWriter.Write(b)
}

// large is an image of some MB that do not compress.
func large(t *testing.T) v1.Image {
	t.Helper()
	img, err := random.Image(8<<20, 2)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestFullDisk is of data directories with too little room: for an image, and
// for the machine of a pod.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts file systems, which only root may")
	}
	registry := testimage.Registry(t)
	big, _ := registry.Push(t, "big:1", large(t))
	for _, tc := range []struct {
		name, size string
		inputs     []badInput
	}{
		{"for an image", "80m", []badInput{
			{name: "pull", args: []string{"image", "pull", "--quiet", big}, code: 1, want: []string{"no space left"}},
			{name: "run", stdin: manifest(big, "['true']", ""), code: 125, want: []string{"no space left"}},
		}},
		{"for a machine", "120m", []badInput{
			{name: "run", stdin: manifest(busybox, "['true']", ""), code: 125, want: []string{"no space left"}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newUser(t, nil, noPool)
			data := filepath.Join(u.dir, "data")
			if err := os.Mkdir(data, 0o711); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+tc.size+",mode=711", "bulkhead-test", data).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			defer func() {
				u.nothingLeft() // while its files are still there
				if out, err := exec.Command("umount", data).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
				_ = os.RemoveAll(u.dir + "/state")
			}()
			conf := filepath.Join(u.dir, "registries.conf")
			if err := os.WriteFile(conf, fmt.Appendf(nil, "[[registry]]\nlocation = %q\ninsecure = true\n", registry.Host), 0o644); err != nil {
				t.Fatal(err)
			}
			u.env = append(u.env, "CONTAINERS_REGISTRIES_CONF="+conf)
			u.loadBusybox()
			for _, in := range tc.inputs {
				t.Run(in.name, func(t *testing.T) { in.check(t, u) })
			}
			if out := u.must("", "image", "ls"); !strings.Contains(out, busybox) || strings.Contains(out, "big") {
				t.Errorf("image ls: %s", out)
			}
		})
	}
}

// TestBadGuest is of guests that do not come up: the console's last lines are
// there for who asks.
func TestBadGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, bundle map[string]any, dir string)
		want   string
		detail string
	}{
		{"a kernel without its init", func(_ *testing.T, bundle map[string]any, _ string) {
			bundle["cmdline"] = bundle["cmdline"].(string) + " rdinit=/nosuch"
		}, "the guest's kernel died", "Kernel panic"},
		{"a kernel that is none", func(t *testing.T, _ map[string]any, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, "vmlinux"), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}, "QEMU ended", "kernel"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newUser(t, nil, noPool)
			guest := filepath.Join(u.dir, "guest")
			if out, err := exec.Command("cp", "-r", os.Getenv("BULKHEAD_GUEST"), guest).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			b, err := os.ReadFile(guest + "/bundle.json")
			bundle := map[string]any{}
			if err != nil || json.Unmarshal(b, &bundle) != nil {
				t.Fatalf("bundle.json: %v", err)
			}
			tc.damage(t, bundle, guest)
			if b, err = json.Marshal(bundle); err != nil || os.WriteFile(guest+"/bundle.json", b, 0o644) != nil {
				t.Fatalf("bundle.json: %v", err)
			}
			u.env = append(u.env, "BULKHEAD_GUEST="+guest)
			u.loadBusybox()
			for _, template := range []string{"on", "off"} {
				in := badInput{stdin: manifest(busybox, "['true']", ""), args: []string{"run", "--rm", "--quiet", "--template", template, "-"}, code: 125, want: []string{tc.want}}
				t.Run("template "+template, func(t *testing.T) {
					began := time.Now()
					in.check(t, u)
					_, stderr, _ := u.run(in.stdin, append([]string{"--detail"}, in.args...)...)
					if !strings.Contains(stderr, tc.detail) {
						t.Errorf("the detail does not tell %q: %s", tc.detail, stderr)
					}
					t.Logf("took %v", time.Since(began))
				})
			}
		})
	}
	u := newUser(t, nil, noPool, "BULKHEAD_GUEST=/no/such")
	badInput{args: []string{"ps"}, code: 1, want: []string{"guest bundle", "/no/such"}}.check(t, u)
	u = newUser(t, nil, noPool, "BULKHEAD_QEMU=/no/such/qemu")
	badInput{args: []string{"ps"}, code: 1, want: []string{"find QEMU", "install qemu-system-x86"}}.check(t, u)
}
