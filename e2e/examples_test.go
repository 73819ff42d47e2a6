package e2e

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// example says how a file of examples/ is run, and the expected result.
type example struct {
	args []string // besides "run" and the file
	code int      // of a command in the foreground
	want string   // a pattern of its output
	// live checks a running pod (args has -d).
	live func(t *testing.T, w *world)
}

var examples = map[string]example{
	"hello.yaml":          {want: `Hello from hello.*\nkernel: Linux hello .*\nmemory: \d+ MiB`},
	"shared-volume.yaml":  {want: `written by shared-volume`},
	"two-containers.yaml": {want: `(?s)server got: hello`},
	"sidecar.yaml":        {want: `(?s)shipper \| .*step one.*step two.*step three`},
	"job.yaml":            {want: `20 words`},
	"untrusted.yaml": {
		args: []string{"--network", "none"}, code: 255, // its deadline ends it
		want: `interfaces: lo \nuser: 65534, capabilities: 0000000000000000\nthe file system is read-only`,
	},
	"cron-loop.yaml":  {args: []string{"-d"}, live: cronLoop},
	"deployment.yaml": {args: []string{"-d"}, live: deployment},
	"web.yaml":        {args: []string{"-d"}, live: web},
	"nginx.yaml":      {args: []string{"-d"}, live: serves("nginx", "8080", "<h1>Hello from a VM of its own</h1>", "33")},
	"database.yaml":   {args: []string{"-d"}, live: database},
}

// TestExamples runs every file of examples/ like a user, except for the ports of the host, which other tests may
// use.
func TestExamples(t *testing.T) {
	t.Parallel()
	testturn.SkipUnless(t, 1, 2)
	w := newForkingWorld(t)
	for name, file := range map[string]string{
		"localhost/busybox:demo": "oci-archive:busybox.tar", "docker.io/library/nginx:1.27": "docker-archive:images/nginx.tar",
		"docker.io/library/redis:7": "docker-archive:images/redis.tar",
	} {
		format, file, _ := strings.Cut(file, ":")
		archive, err := filepath.Abs(filepath.Join("..", "build", file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(archive); err != nil {
			t.Fatalf("%v (make test makes it)", err)
		}
		w.must(t, "", "image", "load", format+":"+archive, name)
	}
	first := strings.Replace(pod("first", "Never", "true"), "name: c,", "name: c, resources: {limits: {memory: 64Mi}},", 1)
	w.must(t, first, "run", "--rm", "--network", "none", "-")
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) != len(examples) {
		t.Fatalf("%d files, %d in the table: %v", len(files), len(examples), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			e, known := examples[filepath.Base(file)]
			if !known {
				t.Fatal("the table has no expected result")
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// Any free port instead of a well-known one.
			yaml := regexp.MustCompile(`, hostPort: \d+`).ReplaceAllStringFunc(string(text), func(string) string { return ", hostPort: " + free(t) })
			// With its template built, the end need not wait for the template.
			yaml = strings.Replace(yaml, "activeDeadlineSeconds: 20", "activeDeadlineSeconds: 8", 1)
			if e.live == nil {
				c := w.run(t, yaml, append(append([]string{"run", "--rm"}, e.args...), "-")...)
				if c.ProcessState.ExitCode() != e.code || !regexp.MustCompile(e.want).MatchString(c.out.String()) {
					t.Errorf("%v, want code %d and %q", c, e.code, e.want)
				}
				return
			}
			w.must(t, yaml, append(append([]string{"run"}, e.args...), "-")...)
			e.live(t, w)
		})
	}
}

// free returns a free port of the host.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// soon waits until a command's output matches, and returns the output.
func (w *world) soon(t *testing.T, pattern string, args ...string) string {
	t.Helper()
	want := regexp.MustCompile(pattern)
	var c *command
	for end := time.Now().Add(testdeadline.For(time.Minute)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if c = w.run(t, "", args...); want.MatchString(c.out.String()) {
			return c.out.String()
		}
	}
	t.Fatalf("%v, want %q", c, pattern)
	return ""
}

func cronLoop(t *testing.T, w *world) {
	w.soon(t, `round 2\n`, "logs", "cron-loop")
}

func deployment(t *testing.T, w *world) {
	w.soon(t, `Good day, everyone, from greeter.* with 64 MiB\nthe token has 6 bytes`, "logs", "greeter")
}

// serves checks a web server: its page on the published port, and its user.
func serves(pod, port, page, user string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		w.soon(t, pod+` +1/1 +Running`, "ps")
		published := regexp.MustCompile(`127\.0\.0\.1:(\d+)->` + port + `\b`).FindStringSubmatch(w.must(t, "", "ps"))
		if published == nil {
			t.Fatal("no port is published")
		}
		client := http.Client{Timeout: testdeadline.For(10 * time.Second)}
		res, err := client.Get("http://127.0.0.1:" + published[1] + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(io.LimitReader(res.Body, 1000))
		if err != nil || strings.TrimSpace(string(body)) != page {
			t.Errorf("%s: %s %v", res.Status, body, err)
		}
		if got := w.must(t, "", "exec", pod, "--", "id", "-u"); got != user+"\n" {
			t.Errorf("%s runs as %q", pod, got)
		}
	}
}

// web also requests the demo image's page with the image's wget.
func web(t *testing.T, w *world) {
	const page = "<h1>Hello from web</h1>"
	serves("web", "80", page, "0")(t, w)
	for _, command := range []string{"wget", "wget -T 2"} {
		args := append([]string{"exec", "web", "--"}, strings.Fields(command+" -q -O - http://127.0.0.1/")...)
		if got := w.must(t, "", args...); strings.TrimSpace(got) != page {
			t.Errorf("%s in the pod: %q", command, got)
		}
	}
}

func database(t *testing.T, w *world) {
	w.soon(t, `database +1/1 +Running`, "ps")
	cli := func(args string) string {
		return w.must(t, "", "exec", "database", "--", "sh", "-c", `redis-cli --no-auth-warning -a "$REDIS_PASSWORD" `+args)
	}
	cli("set greeting hello")
	// The container restarts. Its files belong to the pod.
	w.run(t, "", "exec", "database", "--", "sh", "-c", "kill 1")
	w.soon(t, `database +1/1 +Running +1 `, "ps")
	if got := cli("get greeting"); got != "hello\n" {
		t.Errorf("after a restart: %q", got)
	}
	if c := w.run(t, "", "exec", "database", "--", "redis-cli", "get", "greeting"); !strings.Contains(c.out.String(), "NOAUTH") {
		t.Errorf("without the password: %v", c)
	}
	// The pod restarts, then the engine. The files belong to the claim.
	text, err := os.ReadFile("../examples/database.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.must(t, "", "rm", "-f", "database")
	w.must(t, regexp.MustCompile(`, hostPort: \d+`).ReplaceAllString(string(text), ""), "run", "-d", "-")
	w.soon(t, `database +1/1 +Running`, "ps")
	if err := kill(w.engine()); err != nil {
		t.Fatal(err)
	}
	if got := cli("get greeting"); got != "hello\n" {
		t.Errorf("in another pod: %q", got)
	}
	w.must(t, "", "volume", "rm", "-f", "database")
}
