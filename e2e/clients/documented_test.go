package clients

import (
	"context"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testdoc"
)

// documented: the session in docs/podman.md or docs/docker.md works, line by line.
func documented(ctx context.Context, t *testing.T, e *engine) {
	if !e.vm {
		return
	}
	e.tagBusybox(ctx, t)
	e.removeAtEnd(ctx, t, "web")
	if e.client == "docker" {
		t.Cleanup(func() { e.try(context.WithoutCancel(ctx), t, "", "network", "rm", "shop") }) // a failed session leaves it
	}
	for _, command := range testdoc.Session(t, e.client+".md") {
		command = strings.ReplaceAll(command, "--runtime bulkhead ", "--runtime "+e.name+" ") // docker's name of it in the documents
		cmd := e.system.command(ctx, "/bin/sh", "-ec", `cd "$(mktemp -d)"; `+command)
		cmd.Env = e.env
		if o := runClient(ctx, t, cmd, ""); o.code != 0 || o.stderr != "" {
			t.Fatalf("%s%+v", command, o)
		}
	}
}

// tagBusybox gives the image the name that documents use, until the test ends.
func (e *engine) tagBusybox(ctx context.Context, t *testing.T) {
	t.Helper()
	const busybox = "docker.io/library/busybox:latest"
	e.do(ctx, t, "tag", image, busybox)
	t.Cleanup(func() { e.do(context.WithoutCancel(ctx), t, "rmi", busybox) })
}
