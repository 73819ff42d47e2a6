package cri

import (
	"bufio"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// typed is a crictl command and its expected answer.
type typed struct {
	line  string // IMAGE, POD and ID stand for the test's
	want  string // a regular expression for the answer
	fails bool
	stdin string
}

// TestCrictl types the commands of people who run a node.
func TestCrictl(t *testing.T) {
	registries(t)
	n := newNode(t, enginetest.Forks)
	n.serve(t)
	ctx := testdeadline.Context(t, 2*time.Minute)
	c := newCrictl(t, n)
	img, err := busybox.Image(ctx, busybox.Binary)
	if err != nil {
		t.Fatal(err)
	}
	image, _ := testimage.Registry(t).Push(t, "typed/image:1", img)
	config := critest.Pod("typed")
	config.Hostname, config.LogDirectory = "typed", n.logs+"/typed"
	container := critest.Container("web", "sh", "-c",
		"echo hello; echo oops >&2; echo page >/tmp/a; httpd -p 80 -h /tmp; while read x; do echo read $x; done; exec sleep 1000")
	container.Image.Image, container.Stdin = image, true
	podFile := write(t, n.logs, "pod.json", document(t, config))
	containerFile := write(t, n.logs, "container.json", document(t, container))

	c.session(ctx, t, strings.NewReplacer("IMAGE", image), []typed{
		{line: "version", want: `RuntimeName:  bulkhead\n`},
		{line: "info", want: `(?s)"bulkhead-cold".*"type": "NetworkReady"`},
		{line: "runtime-config", want: "CGROUPFS"},
		{line: "update-runtime-config --pod-cidr 10.88.0.0/16", want: ""},
		{line: "pull IMAGE", want: "Image is up to date for [0-9a-f]{64}"},
		{line: "images", want: `typed/image +1 +[0-9a-f]{13} +\d`},
		{line: "inspecti IMAGE", want: `(?s)"diff_ids".*"repoDigests"`},
		{line: "imagefsinfo", want: `(?s)"imageFilesystems".*"usedBytes"`},
	})
	events := c.follow(ctx, t, "", "events")
	pod := c.id(ctx, t, "runp", podFile)
	id := c.id(ctx, t, "create", pod, containerFile, podFile)
	ids := strings.NewReplacer("IMAGE", image, "POD", pod, "ID", id)
	c.session(ctx, t, ids, []typed{
		{line: "pods", want: pod[:13] + ` +\S.* ago +Ready +typed +default +0 +\(default\)`},
		{line: "ps", want: `^[^\n]*\n$`},
		{line: "ps -a", want: id[:13] + ` +` + image + ` +\S.* ago +Created +web +0 +` + pod[:13]},
		{line: "start ID", want: id},
		{line: "ps", want: " Running "},
		{line: "inspect ID", want: `(?s)"imageRef": "127.*/image@sha256:.*"state": "CONTAINER_RUNNING".*"uid": "0"`},
		{line: "inspectp POD", want: `(?s)"forked".*"ip": "10\.88\.`},
		{line: "exec -s ID hostname", want: "^typed\n"},
		{line: "exec -s ID false", want: "exited with 1", fails: true},
		{line: "exec -s ID nothere", want: "not found in the container's PATH", fails: true},
		{line: "exec -s --timeout 1 ID sleep 1000", want: "timed out", fails: true},
		{line: "exec ID hostname", want: "^typed\n"},
		{line: "exec ID false", want: "exit code 1", fails: true},
		{line: "exec -i ID cat", stdin: "typed in", want: "^typed in$"},
	})
	until(t, c.follow(ctx, t, "words\n", "attach", "-i", id), "^read words\n")
	c.session(ctx, t, ids, []typed{
		{line: "logs ID", want: "(?m)^read words$"},
		{line: "logs -t --tail 1 ID", want: `^\d{4}-\d\d-\d\dT[\d:.]+Z read words\n$`},
		{line: "update --memory 67108864 --cpu-quota 50000 --cpu-period 100000 ID", want: id},
		{line: "exec -s ID cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max", want: "^67108864\n50000 100000\n"},
		{line: "stats", want: id[:13] + ` +web +\d+\.\d+ +[1-9]`},
		{line: "statsp", want: `typed +` + pod[:13] + ` +\d+\.\d+ +[1-9]`},
		{line: "metricdescs", want: "container_cpu_usage_seconds_total"},
		{line: "metricsp", want: `(?s)"container_network_transmit_bytes_total".*"container_memory_working_set_bytes"`},
		{line: "checkpoint --export /nowhere ID", want: "Unimplemented", fails: true},
	})
	until(t, c.follow(ctx, t, "", "logs", "-f", id), "^read words\n")
	at := until(t, c.follow(ctx, t, "", "port-forward", pod, ":80"), `127\.0\.0\.1:\d+`)
	if got := get(ctx, t, "http://"+at+"/a"); got != "page\n" {
		t.Errorf("forwarded: %q", got)
	}
	c.session(ctx, t, ids, []typed{
		{line: "rm ID", want: "is running, please stop it first", fails: true},
		{line: "stop ID", want: id},
		{line: "ps -a", want: " Exited "},
		{line: "inspect ID", want: `(?s)"exitCode": 137.*"reason": "Error"`},
		{line: "rm ID", want: id},
		{line: "rmp POD", want: "is running, please stop it first", fails: true},
		{line: "stopp POD", want: "Stopped sandbox " + pod},
		{line: "pods", want: " NotReady "},
		{line: "rmp POD", want: "Removed sandbox " + pod},
		{line: "inspect ID", want: "NotFound", fails: true},
		{line: "run --no-pull " + containerFile + " " + podFile, want: "^[0-9a-f]{64}\n$"},
		{line: "rmp -f -a", want: "Removed sandbox"},
		{line: "pods", want: `^[^\n]*\n$`},
		{line: "rmi IMAGE", want: "Deleted: " + image},
		{line: "rmi IMAGE", want: "no such image", fails: true},
	})
	for _, e := range []string{"CREATED", "STARTED", "STOPPED", "DELETED"} {
		until(t, events, "CONTAINER_"+e+"_EVENT")
	}
	n.nothingLeft(t)
}

// session runs commands. Each must end and print as expected. A failing command prints to stderr.
func (c crictl) session(ctx context.Context, t *testing.T, names *strings.Replacer, lines []typed) {
	t.Helper()
	for _, l := range lines {
		args := strings.Fields(names.Replace(l.line))
		stdout, stderr, err := c.run(ctx, l.stdin, args...)
		if t.Logf("$ crictl %s\n%s%s", strings.Join(args, " "), stdout, stderr); l.fails {
			stdout = stderr
		}
		if (err != nil) != l.fails || !regexp.MustCompile(l.want).MatchString(stdout) {
			t.Errorf("crictl %s: %v: %s%s", l.line, err, stdout, stderr)
		}
	}
}

// follow starts a command that runs until the test's end, and returns its output.
func (c crictl) follow(ctx context.Context, t *testing.T, stdin string, args ...string) *bufio.Reader {
	t.Helper()
	cmd := c.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() // it may have ended
		cmd.Wait()
	})
	return bufio.NewReader(out)
}

// until reads lines until one matches, and returns the match.
func until(t *testing.T, from *bufio.Reader, want string) string {
	t.Helper()
	for {
		line, err := from.ReadString('\n')
		if m := regexp.MustCompile(want).FindString(line); m != "" {
			return m
		}
		if err != nil {
			t.Fatalf("%v before %s", err, want)
		}
	}
}
