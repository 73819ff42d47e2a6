package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

var hookCases = []contractCase{
	{"hooks in order", hooks},
	{"hooks that fail", hooksFail},
	{"a hook that hangs", hookHangs},
	{"a hook that is missing", hookMissing},
	{"a hook configures the network", hookNetwork},
}

// hook returns a hook that runs a shell script. $1 is a file, and its input the state.
func hook(file, text string) specs.Hook {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "OF=hook"}
	return specs.Hook{Path: "/bin/sh", Args: []string{"hook", "-c", text, "hook", file}, Env: env}
}

// hooks: each kind of hook runs at its point, in order, with its arguments and environment, and reads the state.
func hooks(ctx context.Context, t *testing.T, c *contract) {
	order := filepath.Join(c.dir, "order")
	note := func(kind string) []specs.Hook {
		one := fmt.Sprintf("cat >$1.%s; echo %s $OF $0 >>$1", kind, kind)
		return []specs.Hook{hook(order, one), hook(order, "echo second >>$1")}
	}
	inContainer := specs.Hook{
		Path: "/bin/sh", Args: []string{"sh", "-c", "cat >/state; echo startContainer $OF >>/order; pwd >>/order"},
		Env: []string{"PATH=/bin", "OF=hook"},
	}
	spec := script("cat /order; read line")
	spec.Annotations = map[string]string{"org.example.key": "a value"}
	spec.Hooks = &specs.Hooks{
		Prestart:      note("prestart"), //nolint:staticcheck // docker uses it
		CreateRuntime: note("createRuntime"), CreateContainer: note("createContainer"),
		StartContainer: []specs.Hook{inContainer}, Poststart: note("poststart"), Poststop: note("poststop"),
	}
	bundle := writeBundle(t, spec)
	k := c.create(ctx, t, "c", bundle)
	want := "prestart hook hook\nsecond\ncreateRuntime hook hook\nsecond\ncreateContainer hook hook\nsecond\n"
	const poststart = "poststart hook hook\nsecond\n"
	if !c.vm {
		want += poststart // runc is early
	}
	check := func(when string) {
		t.Helper()
		if text, err := os.ReadFile(order); err != nil || string(text) != want {
			t.Errorf("%s: hooks %q, %v, want %q", when, text, err, want)
		}
	}
	check("after create")
	c.do(ctx, t, "start", "c")
	k.stdout.await(ctx, t, "startContainer hook\n/\n")
	if c.vm {
		want += poststart
	}
	check("after start")
	k.stdin.Close()
	k.expectExit(ctx, t, 1)
	check("after the end")
	c.do(ctx, t, "delete", "c")
	want += "poststop hook hook\nsecond\n"
	check("after delete")
	for kind, status := range map[string]specs.ContainerState{
		"prestart": specs.StateCreating, "createRuntime": specs.StateCreating, "createContainer": specs.StateCreating,
		"startContainer": specs.StateCreated, "poststart": specs.StateRunning, "poststop": specs.StateStopped,
	} {
		file, pid := order+"."+kind, k.pid
		switch kind {
		case "poststart":
			if !c.vm {
				status = specs.StateCreated
			}
		case "startContainer":
			file = filepath.Join(bundle, "rootfs/state")
		case "poststop":
			pid = 0
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		var got specs.State
		if err := json.Unmarshal(text, &got); err != nil {
			t.Errorf("the state for %s: %v: %s", kind, err, text)
		}
		if kind == "createContainer" || kind == "startContainer" {
			pid = got.Pid // it may be as the container sees it
		}
		if c.vm && kind == "startContainer" { // the guest's runtime writes it, with names of the guest
			continue
		}
		want := specs.State{Version: got.Version, ID: "c", Status: status, Pid: pid, Bundle: bundle, Annotations: spec.Annotations}
		if diff := cmp.Diff(want, got); diff != "" || got.Version == "" {
			t.Errorf("the state for %s (-want +got):\n%s", kind, diff)
		}
	}
}

// hooksFail: a hook that fails before start ends create or start, and nothing is left. Later ones are only logged.
func hooksFail(ctx context.Context, t *testing.T, c *contract) {
	failing := []specs.Hook{hook("", "echo the reason >&2; exit 3")}
	for kind, h := range map[string]*specs.Hooks{
		"prestart":        {Prestart: failing},
		"createRuntime":   {CreateRuntime: failing},
		"createContainer": {CreateContainer: failing},
	} {
		marker := filepath.Join(c.dir, kind)
		h.Poststop = []specs.Hook{hook(marker, "touch $1")}
		spec := newSpec("true")
		spec.Hooks = h
		bundle := writeBundle(t, spec)
		r := c.run(ctx, t, "create", "--bundle", bundle, "c")
		if r.code != 1 || !strings.Contains(r.logged, "exit status 3") || !strings.Contains(r.logged, "the reason") {
			t.Errorf("create with a failing %s hook: %d, %q", kind, r.code, r.logged)
		}
		c.fails(ctx, t, 1, "container does not exist", "state", "c")
		if held := mountsOf(t, bundle); len(held) > 0 {
			t.Errorf("after a failing %s hook, the root is mounted: %q", kind, held)
		}
		if _, err := os.Stat(marker); err != nil {
			t.Errorf("the poststop hook after a failing %s hook: %v", kind, err)
		}
	}
	spec := newSpec("sleep", "1000")
	spec.Hooks = &specs.Hooks{Poststop: append(failing, hook(filepath.Join(c.dir, "after"), "touch $1"))}
	c.start(ctx, t, "stopped", spec)
	c.do(ctx, t, "delete", "--force", "stopped")
	if _, err := os.Stat(filepath.Join(c.dir, "after")); c.vm && err != nil { // runc gives up
		t.Errorf("the hook after a failing poststop hook: %v", err)
	}
}

// hookHangs: a hook ends at its timeout, and create fails.
func hookHangs(ctx context.Context, t *testing.T, c *contract) {
	second := 1
	hanging := hook("", "sleep 1000")
	hanging.Args = []string{"hook", "-c", "exec sleep 1000"}
	hanging.Timeout = &second
	spec := newSpec("true")
	spec.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{hanging}}
	r := c.run(ctx, t, "create", "--bundle", writeBundle(t, spec), "c")
	if r.code != 1 || !strings.Contains(r.logged, "hook ran past specified timeout of 1.0s") {
		t.Errorf("create with a hanging hook: %d, %q", r.code, r.logged)
	}
	c.fails(ctx, t, 1, "container does not exist", "state", "c")
}

func hookMissing(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("true")
	spec.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/absent/hook"}}}
	c.fails(ctx, t, 1, "/absent/hook: no such file or directory", "create", "--bundle", writeBundle(t, spec), "c")
	c.fails(ctx, t, 1, "container does not exist", "state", "c")
}

// hookNetwork: nerdctl's createRuntime hook, and docker's prestart hook, configure the network namespace of the process.
func hookNetwork(ctx context.Context, t *testing.T, c *contract) {
	for _, kind := range []string{"prestart", "createRuntime"} {
		configure := []specs.Hook{hook("", `pid=$(sed 's/.*"pid": *\([0-9]*\).*/\1/')
			in="nsenter --net=/proc/$pid/ns/net"
			$in ip link add eth0 type veth peer name out && $in ip link set out up
			$in ip addr add 10.7.7.7/24 dev eth0 && $in ip link set eth0 up`)}
		spec := newSpec("ip", "-o", "-4", "addr", "show", "dev", "eth0")
		if spec.Hooks = (&specs.Hooks{CreateRuntime: configure}); kind == "prestart" {
			spec.Hooks = &specs.Hooks{Prestart: configure} //nolint:staticcheck // docker uses it
		}
		k := c.start(ctx, t, kind, spec)
		k.expectExit(ctx, t, 0)
		if got := k.stdout.all(ctx, t); !strings.Contains(got, "10.7.7.7/24") {
			t.Errorf("the address after a %s hook: %q", kind, got)
		}
	}
}
