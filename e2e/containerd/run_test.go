package containerd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// runs runs containers in the foreground: output, input, exit status and errors.
func runs(t *testing.T, n *node) {
	if got := n.run(t, "", "--rm", image, "hello", "/bin/echo", "hello"); got != "hello\n" {
		t.Errorf("echo: got %q", got)
	}
	if got := n.run(t, "some\ninput", "--rm", image, "cat", "/bin/cat"); got != "some\ninput" {
		t.Errorf("cat: got %q", got)
	}
	if got := n.run(t, "", "--rm", image, "many", "/bin/sh", "-c", "seq 100000 | tail -c 7"); got != "100000\n" {
		t.Errorf("seq: got %q", got)
	}
	ctx := testdeadline.Context(t, 20*time.Second)
	res, err := n.try(ctx, "", "run", "--rm", "--runtime", runtime, image, "seven", "/bin/sh", "-c", "echo oops >&2; exit 7")
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(res.stderr, "oops") {
		t.Errorf("exit 7: got %v", err)
	}
	_, err = n.try(testdeadline.Context(t, 20*time.Second), "", "run", "--rm", "--runtime", runtime, image, "none", "/none")
	if err == nil || !strings.Contains(err.Error(), `OCI runtime create failed:`) {
		t.Errorf("a missing program: got %v, want the words of runc", err)
	}
}

// logURIs: the output goes into a file, and to a logging program.
func logURIs(t *testing.T, n *node) {
	logger := n.path("logger")
	script := "#!/bin/sh\ncat <&3 >" + n.path("out") + " 5>&- & cat <&4 >" + n.path("err") + " 5>&- & exec 5>&-; wait\n"
	if err := os.WriteFile(logger, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for id, uri := range map[string]string{"file": "file://" + n.path("logs/file"), "binary": "binary://" + logger} {
		n.run(t, "", "--rm", "--log-uri", uri, image, id, "/bin/sh", "-c", "echo to stdout; echo to stderr >&2")
	}
	for file, want := range map[string]string{"logs/file": "to stderr\nto stdout\n", "out": "to stdout\n", "err": "to stderr\n"} {
		awaitFile(t, n.path(file), want)
	}
}

// awaitFile waits until a file has lines, in any order.
func awaitFile(t *testing.T, path, want string) {
	t.Helper()
	var got []byte
	for ctx := testdeadline.Context(t, 10*time.Second); ctx.Err() == nil; <-time.After(5 * time.Millisecond) {
		got, _ = os.ReadFile(path)
		if strings.Join(slices.Sorted(strings.Lines(string(got))), "") == want {
			return
		}
	}
	t.Errorf("%s: got %q, want %q", filepath.Base(path), got, want)
}
