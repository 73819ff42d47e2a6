package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"exec"}, "exec: POD is missing (see bulkhead exec --help)"},
		{[]string{"exec", "web"}, "exec: COMMAND is missing"},
		{
			[]string{"exec", "web", "-c", "app", "sh"},
			"-c comes after the pod: put it before the pod, or -- before the command (see bulkhead exec --help)",
		},
		{[]string{"inspect", "a", "b"}, `inspect: "b" is one argument too many`},
		{[]string{"image", "nosuch"}, `image: unknown command "nosuch" (see bulkhead image --help)`},
		{[]string{"nosuch"}, `unknown command "nosuch" (see bulkhead --help)`},
		{[]string{"inspec", "web"}, `unknown command "inspec": did you mean inspect? (see bulkhead --help)`},
		{[]string{"get", "pods"}, `unknown command "get": did you mean ps?`},
		{[]string{"--nosuch"}, "unknown flag: --nosuch (see bulkhead --help)"},
		{[]string{"ps", "x"}, `ps: "x" is one argument too many (see bulkhead ps --help)`},
		{[]string{"ps", "--qiet"}, "ps: unknown flag: --qiet: did you mean --quiet? (see bulkhead ps --help)"},
		{[]string{"run", "x.yaml", "--detatch"}, "run: unknown flag: --detatch: did you mean --detach?"},
		{[]string{"image", "pull", "--detial"}, "unknown flag: --detial: did you mean --detail?"},
		{[]string{"ps", "--zz"}, "ps: unknown flag: --zz (see"},
		{[]string{"ps", "-x"}, "ps: unknown shorthand flag"},
		{[]string{"completion", "ksh"}, `no completion for "ksh": use bash, zsh or fish`},
		{[]string{"stop", "-t", "-1", "web"}, "--time -1: must be 0 or more seconds"},
		{[]string{"run", "x.yaml"}, "open x.yaml: no such file or directory"},
		{[]string{"run", "x.yaml", "-q", "-e", "A=1"}, "--env: only for an image"},
		{[]string{"run", "-v", "a:b", "busybox"}, "\"b\" is not an absolute path in the pod"},
		{[]string{"run", "--wait", "x.yaml"}, "--wait needs -d"},
		{[]string{"run", "--wait-timeout", "1s", "x.yaml"}, "--wait-timeout needs --wait; --timeout stops the pods"},
		{[]string{"run", "--cpu", "none", "busybox"}, `--cpus "none": must be a number of processors`},
		{
			[]string{"update", "--cpu", "1", "--memory", "512", "web"},
			`--memory "512" is a number of bytes, but a container needs at least 6m: write 512m`,
		},
		{[]string{"run", "--timeout", "soon", "x.yaml"}, "must be a number of seconds, or a duration such as 5m"},
		{[]string{"run", "-it", "busybox", "sh"}, "-t needs a terminal on stdin"},
		{[]string{"run"}, "run: FILE or IMAGE is missing (see bulkhead run --help)"},
		{[]string{"run", "--accel", "hvf", "x.yaml"}, `--accel "hvf": use auto or kvm or tcg`},
	} {
		root := newRoot(&app.App{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
		usage(root)
		root.SetArgs(tc.args)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
	}
}

// TestHabits: the commands accept what users of podman and kubectl type.
func TestHabits(t *testing.T) {
	for _, args := range [][]string{
		{"pull", "-q", "x"}, {"images", "-q"}, {"images", "-a", "--format", "{{.ID}}"}, {"rmi", "x"},
		{"load", "-i", "x"}, {"image", "load", "-i", "x"},
		{"image", "history", "x"}, {"ps", "-f", "status=running", "--format", "{{.Names}}"}, {"system", "df", "-v"},
		{"ps", "-a"}, {"ps", "--all"}, {"ps", "-aq"}, {"ps", "-A"}, {"events", "-f"}, {"events", "-w"}} {
		cmd, rest, err := Command().Find(args)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
