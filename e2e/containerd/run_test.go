package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// TestRun runs containers in the foreground: output, input, exit status and errors.
func TestRun(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		if got := n.run(t, "", "--rm", image, "hello", "/bin/echo", "hello"); got != "hello\n" {
			t.Errorf("echo: got %q", got)
		}
		if got := n.run(t, "some\ninput", "--rm", image, "cat", "/bin/cat"); got != "some\ninput" {
			t.Errorf("cat: got %q", got)
		}
		if got := n.run(t, "", "--rm", image, "many", "/bin/sh", "-c", "seq 100000 | tail -c 7"); got != "100000\n" {
			t.Errorf("seq: got %q", got)
		}
		for id, test := range map[string]struct{ command, status, stderr string }{
			"seven": {"echo oops >&2; exit 7", "exit status 7", "oops"},
			"kill":  {"kill -9 $$", "exit status 137", ""},
		} {
			ctx := testdeadline.Context(t, 20*time.Second)
			res, err := n.try(ctx, "", "run", "--rm", "--runtime", n.front, image, id, "/bin/sh", "-c", test.command)
			if err == nil || !strings.Contains(err.Error(), test.status) || !strings.Contains(res.stderr, test.stderr) {
				t.Errorf("%s: got %v, want %s", id, err, test.status)
			}
		}
		_, err := n.try(testdeadline.Context(t, 20*time.Second), "", "run", "--rm", "--runtime", n.front, image, "none", "/none")
		if err == nil || !strings.Contains(err.Error(), `OCI runtime create failed:`) {
			t.Errorf("a missing program: got %v, want the words of runc", err)
		}
	})
}

// TestLogURIs: the output goes into a file, and to a logging program.
func TestLogURIs(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		logger := n.path("logger")
		script := "#!/bin/sh\ncat <&3 >" + n.path("out") + " 5>&- & cat <&4 >" + n.path("err") + " 5>&- & exec 5>&-; wait\n"
		if err := os.WriteFile(logger, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		for id, uri := range map[string]string{"file": "file://" + n.path("logs/file"), "binary": "binary://" + logger} {
			n.run(t, "", "-d", "--log-uri", uri, image, id, "/bin/sh", "-c", "echo to stdout; echo to stderr >&2")
			n.ctr(t, "", "task", "delete", id)
			n.ctr(t, "", "container", "delete", id)
		}
		for file, want := range map[string]string{"logs/file": "to stdout\nto stderr\n", "out": "to stdout\n", "err": "to stderr\n"} {
			awaitFile(t, n.path(file), want)
		}
	})
}

// awaitFile waits until a file has a content.
func awaitFile(t *testing.T, path, want string) {
	t.Helper()
	var got []byte
	for ctx := testdeadline.Context(t, 10*time.Second); ctx.Err() == nil; <-time.After(5 * time.Millisecond) {
		if got, _ = os.ReadFile(path); string(got) == want {
			return
		}
	}
	t.Errorf("%s: got %q, want %q", filepath.Base(path), got, want)
}
