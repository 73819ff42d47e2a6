package clients

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// documented: the session in docs/podman.md or docs/docker.md works, line by line.
func documented(ctx context.Context, t *testing.T, e *engine) {
	if !e.vm {
		return
	}
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", e.client+".md"))
	if err != nil {
		t.Fatal(err)
	}
	const busybox = "docker.io/library/busybox:latest"
	e.do(ctx, t, "tag", image, busybox)
	t.Cleanup(func() { e.do(context.WithoutCancel(ctx), t, "rmi", busybox) })
	e.removeAtEnd(ctx, t, "web")
	_, session, _ := strings.Cut(string(text), "\n## A session\n")
	session, _, _ = strings.Cut(session, "\n## ")
	typed := 0
	for line := range strings.Lines(session) {
		line, found := strings.CutPrefix(line, "    ")
		if !found {
			continue
		}
		typed++
		line = strings.ReplaceAll(line, "--runtime bulkhead ", "--runtime "+e.name+" ") // docker's name of it in the documents
		cmd := e.system.command(ctx, "/bin/sh", "-ec", `cd "$(mktemp -d)"; `+line)
		cmd.Env = e.env
		if o := runClient(ctx, t, cmd, ""); o.code != 0 || o.stderr != "" {
			t.Fatalf("%s%+v", line, o)
		}
	}
	if typed < 5 {
		t.Errorf("the document has %d lines to type", typed)
	}
}
