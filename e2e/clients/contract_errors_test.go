package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var errorCases = []contractCase{
	{"unknown ids", unknownIDs},
	{"bad ids", badIDs},
	{"bad bundles", badBundles},
	{"stopped containers", stoppedContainers},
	{"bad usage", badUsage},
	{"failed creates leave nothing", failedCreates},
	{"a root that vanishes", rootVanishes},
}

// unknownIDs: each command fails with the same text. Clients look for it.
func unknownIDs(ctx context.Context, t *testing.T, c *contract) {
	for _, command := range []string{"state", "start", "kill", "delete", "pause", "resume", "ps", "update", "events --stats"} {
		c.fails(ctx, t, 1, "container does not exist", append(strings.Fields(command), "unknown")...)
	}
	c.fails(ctx, t, 255, "container does not exist", "exec", "unknown", "true")
}

func badIDs(ctx context.Context, t *testing.T, c *contract) {
	bundle := writeBundle(t, newSpec("true"))
	for _, id := range []string{"../c", "a/b", ".", "a b", "ä"} {
		c.fails(ctx, t, 1, "invalid container ID format", "create", "--bundle", bundle, id)
	}
	c.fails(ctx, t, 1, "container id cannot be empty", "create", "--bundle", bundle, "")
	for _, id := range []string{"a_b+c.d-e", "0", strings.Repeat("f", 128)} {
		k := c.create(ctx, t, id, bundle)
		c.do(ctx, t, "start", id)
		k.expectExit(ctx, t, 0)
	}
}

func badBundles(ctx context.Context, t *testing.T, c *contract) {
	empty := t.TempDir()
	c.fails(ctx, t, 1, "JSON specification file config.json not found", "create", "--bundle", empty, "c")
	c.fails(ctx, t, 1, "no such file or directory", "create", "--bundle", "/absent", "c")
	for _, text := range []string{"{", "", "[]", `{"process": 1}`} {
		if err := os.WriteFile(filepath.Join(empty, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := c.run(ctx, t, "create", "--bundle", empty, "c"); r.code != 1 || r.logged == "" {
			t.Errorf("create with the configuration %q: %+v", text, r)
		}
	}
	for name, change := range map[string]func(*specs.Spec){
		"without a process":   func(s *specs.Spec) { s.Process = nil },
		"without arguments":   func(s *specs.Spec) { s.Process.Args = nil },
		"relative directory":  func(s *specs.Spec) { s.Process.Cwd = "tmp" },
		"without a root":      func(s *specs.Spec) { s.Root = nil },
		"with an absent root": func(s *specs.Spec) { s.Root.Path = "absent" },
	} {
		spec := newSpec("true")
		change(spec)
		if r := c.run(ctx, t, "create", "--bundle", writeBundle(t, spec), "c"); r.code != 1 || r.logged == "" {
			t.Errorf("create %s: %+v", name, r)
		}
		c.fails(ctx, t, 1, "container does not exist", "state", "c")
	}
}

func stoppedContainers(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", newSpec("true"))
	k.expectExit(ctx, t, 0)
	c.fails(ctx, t, 1, "cannot start a container that has stopped", "start", "c")
	c.fails(ctx, t, 255, "cannot exec in a stopped container", "exec", "c", "true")
	c.fails(ctx, t, 1, "container not running", "pause", "c")
	c.fails(ctx, t, 1, "container not paused", "resume", "c")
	c.start(ctx, t, "running", newSpec("sleep", "1000"))
	c.fails(ctx, t, 1, "cannot start an already running container", "start", "running")
}

// badUsage: wrong arguments and flags fail with an exit code other than 0, and are named.
func badUsage(ctx context.Context, t *testing.T, c *contract) {
	for command, want := range map[string]string{
		"create":              `"create" requires exactly 1 argument(s)`,
		"create a b":          `"create" requires exactly 1 argument(s)`,
		"start":               `"start" requires exactly 1 argument(s)`,
		"state":               `"state" requires exactly 1 argument(s)`,
		"kill":                `"kill" requires a minimum of 1 argument(s)`,
		"delete":              `"delete" requires exactly 1 argument(s)`,
		"list --format other": "invalid format option",
	} {
		if r := c.run(ctx, t, strings.Fields(command)...); r.code != 1 || !strings.Contains(r.stderr+r.logged, want) {
			t.Errorf("%s: %d, %q, want %q", command, r.code, r.stderr, want)
		}
	}
	if r := c.run(ctx, t, "other"); r.code == 0 || !strings.Contains(r.stderr+r.logged, "other") {
		t.Errorf("an unknown command: %d, %q", r.code, r.stderr)
	}
	if r := c.run(ctx, t, "state", "--other", "c"); r.code == 0 || !strings.Contains(r.stderr+r.stdout, "other") {
		t.Errorf("an unknown flag: %d, %q", r.code, r.stderr)
	}
	if got := c.do(ctx, t, "help"); !strings.Contains(got, "create") || !strings.Contains(got, "--root") {
		t.Errorf("help: %q", got)
	}
}

// failedCreates: a create that fails late leaves no process, no state and no mount, and the id is free.
func failedCreates(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("true")
	spec.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{hook("", "exit 1")}}
	bundle := writeBundle(t, spec)
	for range 3 {
		if r := c.run(ctx, t, "create", "--bundle", bundle, "c"); r.code != 1 {
			t.Errorf("create: %+v", r)
		}
	}
	if held := mountsOf(t, bundle); len(held) > 0 {
		t.Errorf("mounts left: %q", held)
	}
	if left, err := os.ReadDir(c.root); err != nil || len(left) > 0 {
		t.Errorf("states left: %v, %v", left, err)
	}
	writeConfig(t, bundle, script("exit 3"))
	k := c.create(ctx, t, "c", bundle)
	c.do(ctx, t, "start", "c")
	k.expectExit(ctx, t, 3)
}

// rootVanishes: a container with an unmounted and removed root can be killed and deleted, before start and after.
func rootVanishes(ctx context.Context, t *testing.T, c *contract) {
	for _, started := range []bool{false, true} {
		bundle := writeBundle(t, newSpec("sleep", "1000"))
		root := filepath.Join(bundle, "rootfs")
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
		mkdir(t, root)
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
		newRoot(t, root)
		k := c.create(ctx, t, fmt.Sprint("started-", started), bundle)
		if started {
			c.do(ctx, t, "start", k.id)
		}
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(root); err != nil {
			t.Fatal(err)
		}
		c.do(ctx, t, "kill", k.id, "KILL")
		k.expectSignal(ctx, t, unix.SIGKILL)
		c.do(ctx, t, "delete", k.id)
		if held := mountsOf(t, bundle); len(held) > 0 {
			t.Errorf("after delete, the root is mounted: %q", held)
		}
	}
}
