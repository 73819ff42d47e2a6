package clients

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
)

var queryCases = []contractCase{
	{"version", version},
	{"features", runtimeFeatures},
	{"spec", specCommand},
	{"list", list},
	{"ps", ps},
	{"events", events},
	{"checkpoint", checkpoint},
}

// version: dockerd reads the words of these lines.
func version(ctx context.Context, t *testing.T, c *contract) {
	got := c.do(ctx, t, "--version")
	re := regexp.MustCompile(`(?m)\A` + c.name + ` version \S+\n(.*\n)*commit: .*\n(.*\n)*spec: 1\.\d+\.\d+`)
	if !re.MatchString(got) {
		t.Errorf("--version: %q, want %s", got, re)
	}
	if short := c.do(ctx, t, "-v"); short != got {
		t.Errorf("-v: %q, want %q", short, got)
	}
}

// runtimeFeatures: CRI-O and newer docker ask for the features at their start.
func runtimeFeatures(ctx context.Context, t *testing.T, c *contract) {
	text := c.do(ctx, t, "features")
	var got features.Features
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("features: %v: %s", err, text)
	}
	if !strings.HasPrefix(got.OCIVersionMin, "1.0") || !strings.HasPrefix(got.OCIVersionMax, "1.") {
		t.Errorf("versions %q to %q", got.OCIVersionMin, got.OCIVersionMax)
	}
	for name, lists := range map[string][2][]string{
		"hooks":         {got.Hooks, {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}},
		"mount options": {got.MountOptions, {"bind", "rbind", "ro", "rw", "nosuid", "nodev", "noexec", "rprivate", "rslave"}},
		"namespaces":    {got.Linux.Namespaces, {"cgroup", "ipc", "mount", "network", "pid", "user", "uts"}},
		"capabilities":  {got.Linux.Capabilities, capabilities},
	} {
		for _, want := range lists[1] {
			if !slices.Contains(lists[0], want) {
				t.Errorf("%s lack %s", name, want)
			}
		}
	}
	if s := got.Linux.Seccomp; s == nil || s.Enabled == nil || !*s.Enabled || !slices.Contains(s.Actions, "SCMP_ACT_ERRNO") {
		t.Errorf("seccomp: %+v", s)
	}
}

// specCommand: spec writes a configuration that works, and does not replace one.
func specCommand(ctx context.Context, t *testing.T, c *contract) {
	bundle := t.TempDir()
	newRoot(t, filepath.Join(bundle, "rootfs"))
	c.do(ctx, t, "spec", "--bundle", bundle)
	c.fails(ctx, t, 1, "File config.json exists. Remove it first", "spec", "-b", bundle)
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	if !spec.Process.Terminal || !slices.Equal(spec.Process.Args, []string{"sh"}) || spec.Root.Path != "rootfs" {
		t.Errorf("configuration: %s", text)
	}
	spec.Process.Terminal, spec.Process.Args = false, []string{"sh", "-c", "exit 3"}
	spec.Process.Rlimits = nil // root may not raise its limits everywhere
	writeConfig(t, bundle, &spec)
	if r := c.run(ctx, t, "run", "--bundle", bundle, "c"); r.code != 3 {
		t.Errorf("run with it: %+v", r)
	}
}

// list: containers are listed as a table, as JSON and as ids.
func list(ctx context.Context, t *testing.T, c *contract) {
	if got := c.do(ctx, t, "list", "--format", "json"); got != "null\n" {
		t.Errorf("without containers: %q", got)
	}
	running := c.start(ctx, t, "one", newSpec("sleep", "1000"))
	two := c.create(ctx, t, "two", writeBundle(t, newSpec("true")))
	if got := c.do(ctx, t, "list", "-q"); got != "one\ntwo\n" {
		t.Errorf("list -q: %q", got)
	}
	var got []state
	text := c.do(ctx, t, "list", "-f", "json")
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != 2 {
		t.Fatalf("list -f json: %v: %s", err, text)
	}
	for i, want := range []struct {
		created
		status specs.ContainerState
	}{{running, specs.StateRunning}, {two, specs.StateCreated}} {
		if g := got[i]; g.ID != want.id || g.Pid != want.pid || g.Status != want.status || g.Bundle != want.bundle || g.Owner != "root" {
			t.Errorf("container %d of the list: %+v", i, g)
		}
	}
	lines := strings.Split(strings.TrimSpace(c.do(ctx, t, "list")), "\n")
	if len(lines) != 3 || !slices.Equal(strings.Fields(lines[0]), strings.Fields("ID PID STATUS BUNDLE CREATED OWNER")) ||
		!slices.Equal(strings.Fields(lines[1])[:4], []string{"one", strconv.Itoa(running.pid), "running", running.bundle}) {
		t.Errorf("list: %q", lines)
	}
}

// ps: docker runs ps on the host for these pids.
func ps(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", newSpec("sleep", "1000"))
	e := c.execDetached(ctx, t, "c", newSpec("sleep", "1000").Process)
	var pids []int
	text := c.do(ctx, t, "ps", "--format", "json", "c")
	if err := json.Unmarshal([]byte(text), &pids); err != nil {
		t.Fatalf("ps: %v: %s", err, text)
	}
	slices.Sort(pids)
	want := []int{k.pid, e.pid}
	slices.Sort(want)
	if !slices.Equal(pids, want) {
		t.Errorf("ps --format json: %v, want %v", pids, want)
	}
	lines := strings.Split(strings.TrimSpace(c.do(ctx, t, "ps", "c")), "\n")
	if len(lines) != 3 || !slices.Equal(strings.Fields(lines[0])[:3], []string{"UID", "PID", "PPID"}) ||
		strings.Fields(lines[1])[1] != strconv.Itoa(want[0]) {
		t.Errorf("ps: %q", lines)
	}
	table := []string{"PID", strconv.Itoa(want[0]), strconv.Itoa(want[1])}
	if got := strings.Fields(c.do(ctx, t, "ps", "c", "-o", "pid")); !slices.Equal(got, table) {
		t.Errorf("ps -o pid: %q", got)
	}
}

// events: the statistics have the fields that clients show.
func events(ctx context.Context, t *testing.T, c *contract) {
	c.start(ctx, t, "c", newSpec("sleep", "1000"))
	var got struct {
		Type, ID string
		Data     struct {
			CPU    struct{ Usage struct{ Total uint64 } }
			Memory struct{ Usage struct{ Usage, Limit uint64 } }
			Pids   struct{ Current uint64 }
		}
	}
	text := c.do(ctx, t, "events", "--stats", "c")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("events: %v: %s", err, text)
	}
	if d := got.Data; got.Type != "stats" || got.ID != "c" || d.CPU.Usage.Total == 0 || d.Memory.Usage.Usage == 0 || d.Pids.Current == 0 {
		t.Errorf("events: %s", text)
	}
}

// checkpoint: neither runtime can do it here, and each says so in one line.
func checkpoint(ctx context.Context, t *testing.T, c *contract) {
	c.start(ctx, t, "c", newSpec("sleep", "1000"))
	want := "CRIU version check failed"
	if c.vm {
		want = "checkpoint is not supported"
	}
	c.fails(ctx, t, 1, want, "checkpoint", "c")
	if s := c.state(ctx, t, "c"); s.Status != specs.StateRunning {
		t.Errorf("afterwards the container is %s", s.Status)
	}
}
