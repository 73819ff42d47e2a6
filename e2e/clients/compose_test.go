package clients

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testdoc"
)

// dockerCompose: the project in docs/docker.md starts, finds its services by name, and leaves nothing.
func dockerCompose(ctx context.Context, t *testing.T, e *engine) {
	if e.root == "/" {
		t.Skip("the docker-compose of Debian 12 is another program")
	}
	e.tagBusybox(ctx, t)
	dir := filepath.Join(t.TempDir(), "project")
	compose := func(ctx context.Context, command string) outcome {
		cmd := e.system.command(ctx, "/bin/sh", "-ec", "cd "+dir+"; "+command)
		cmd.Env = e.env
		return runClient(ctx, t, cmd, "")
	}
	blocks := testdoc.Blocks(t, "docker.md", "Compose")
	write(t, filepath.Join(dir, "compose.yaml"), strings.ReplaceAll(blocks[0], "runtime: bulkhead", "runtime: "+e.name))
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), testdeadline.For(30*time.Second))
		defer stop()
		compose(ctx, "docker compose down --timeout 0") // a failed session leaves it
	})
	for command := range strings.Lines(blocks[1]) {
		o := compose(ctx, command)
		if o.code != 0 {
			t.Fatalf("%s%+v", command, o)
		}
		verb, want := strings.Fields(command)[2], ""
		switch verb {
		case "up":
			if n := vms(t); e.vm && n != 2 {
				t.Errorf("the project has %d VMs, want 2", n)
			}
		case "exec":
			want = `^[0-9a-f]{12}\n$` // docker names a host by its container
		case "ps":
			want = `(?s)project-db-1 .* Up .*\(healthy\).*project-web-1 .* Up `
		}
		if !regexp.MustCompile(want).MatchString(o.out) {
			t.Errorf("%s%+v, want %s", command, o, want)
		}
	}
	for _, list := range []string{"ps --all", "network ls"} {
		args := append(strings.Fields(list), "--quiet", "--filter", "label=com.docker.compose.project=project")
		e.expect(ctx, t, 0, "", args...)
	}
}
