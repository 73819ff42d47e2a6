package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

const (
	container = "c4a9d8e8ab0b2d1c8a7f6e5d4c3b2a19f8e7d6c5b4a39281706f5e4d3c2b1a09"
	process   = "bf7a6f4bd2fb81301ab231419e76ff81"
)

func TestMessages(t *testing.T) {
	for _, tc := range []struct{ name, got, want string }{
		{"one line", plain("a\n b\tc\n"), "a b c"},
		{"ids", plain("process " + container + "/" + process + ": gone"), "process c4a9d8e8ab0b/bf7a6f4bd2fb: gone"},
		{"digests", plain("layer sha256:" + container + ": bad"), "layer sha256:" + container + ": bad"},
		{"UIDs", plain("pod 9353c822-9a39-46f0-b1fc-46aed8bc6f1b"), "pod 9353c822-9a39-46f0-b1fc-46aed8bc6f1b"},
		{
			"a command that is not there",
			cannotRun("agent exec: exec " + process + " in container " + container + ": executable not found: crun exec: executable file `x` not found in $PATH: No such file or directory: command ended with exit code 127"),
			"executable file `x` not found in $PATH: No such file or directory",
		},
		{"another reason", cannotRun("mount failed"), "mount failed"},
		{"an end that its code tells", endText(api.Ended{Reason: "Error", Message: "c: x"}), ""},
		{"an end that it does not", endText(api.Ended{Reason: "OOMKilled", Message: "c: over its limit"}), "OOMKilled: c: over its limit"},
		{"a reason alone", endText(api.Ended{Reason: "VMKilled"}), "VMKilled"},
		{
			"a container that cannot run", endText(api.Ended{Reason: "ContainerCannotRun", Message: "c: create container " + container + ": crun create: open executable: Permission denied"}),
			"container c cannot be run: open executable: Permission denied (check its command, and what is in its image)",
		},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, tc.got, tc.want)
		}
	}
}

func TestExit(t *testing.T) {
	run, ps := &cobra.Command{Use: "run"}, &cobra.Command{Use: "ps"}
	detailed := &api.Error{Message: "no start", Detail: "--- console ---\npanic\n"}
	for _, tc := range []struct {
		name   string
		cmd    *cobra.Command
		err    error
		detail bool
		code   int
		want   string
	}{
		{"a container's own code", run, ExitError(7), false, 7, ""},
		{"an error of run", run, errors.New("x"), false, 125, "bulkhead: x\n"},
		{"an error", ps, fmt.Errorf("x: %w", errors.New("y\nz")), false, 1, "bulkhead: x: y z\n"},
		{"errors of several pods", ps, errors.Join(errors.New("a"), errors.New("b")), false, 1, "bulkhead: a\nbulkhead: b\n"},
		{"an error with two causes", ps, fmt.Errorf("%w: %w", errors.New("a"), errors.New("b")), false, 1, "bulkhead: a: b\n"},
		{"a missing command", run, &api.Error{Message: "crun exec: no x: command ended with exit code 127", ExitCode: 127}, false, 127, "bulkhead: no x\n"},
		{"more is there", ps, detailed, false, 1, "bulkhead: no start\n(again with --detail for more; bulkhead check looks for what this machine lacks)\n"},
		{"more is wanted", ps, detailed, true, 1, "bulkhead: no start\n--- console ---\npanic\n"},
	} {
		var w bytes.Buffer
		a := &app{err: &w, detail: tc.detail}
		if code := a.exit(tc.cmd, tc.err); code != tc.code || w.String() != tc.want {
			t.Errorf("%s: exit code %d, %q", tc.name, code, w.String())
		}
	}
}

// TestEachPod: the pods that a command names do not wait for one another, and are
// told of in their order.
func TestEachPod(t *testing.T) {
	var out bytes.Buffer
	second := make(chan struct{})
	err := (&app{out: &out}).eachPod([]string{"a", "b", "none", "c"}, func(ref string) error {
		switch ref {
		case "a":
			select {
			case <-second:
			case <-time.After(10 * time.Second):
				return errors.New("b waits for a")
			}
		case "b":
			close(second)
		case "none":
			return errors.New("not found")
		}
		return nil
	})
	if out.String() != "a\nb\nc\n" || err == nil || err.Error() != "not found" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"exec"}, "exec: POD is missing (see bulkhead exec --help)"},
		{[]string{"exec", "web"}, "exec: COMMAND is missing"},
		{[]string{"inspect", "a", "b"}, `inspect: "b" is one argument too many`},
		{[]string{"image", "nosuch"}, `image: unknown command "nosuch" (see bulkhead image --help)`},
		{[]string{"nosuch"}, `unknown command "nosuch" (see bulkhead --help)`},
		{[]string{"inspec", "web"}, `unknown command "inspec": did you mean inspect? (see bulkhead --help)`},
		{[]string{"get", "pods"}, `unknown command "get": did you mean ps?`},
		{[]string{"--nosuch"}, "unknown flag: --nosuch (see bulkhead --help)"},
		{[]string{"ps", "x"}, `ps: "x" is one argument too many (see bulkhead ps --help)`},
		{[]string{"ps", "-x"}, "ps: unknown shorthand flag"},
		{[]string{"completion", "ksh"}, `no completion for "ksh": use bash, zsh or fish`},
		{[]string{"stop", "-t", "-1", "web"}, "--time -1: give 0 seconds or more"},
		{[]string{"run", "busybox"}, "open busybox: no such file or directory (run takes files with the YAML of pods)"},
		{[]string{"run", "--accel", "hvf", "x.yaml"}, `--accel "hvf": use auto or kvm or tcg`},
	} {
		root := (&app{out: &bytes.Buffer{}, err: &bytes.Buffer{}}).root()
		usage(root)
		root.SetArgs(tc.args)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
	}
}

// TestLateFlags: flags between the pod and -- are kubectl's habit.
func TestLateFlags(t *testing.T) {
	for _, tc := range []struct{ args, command, container, err string }{
		{args: "web ls -l", command: "ls -l"},
		{args: "web -- ls -- -l", command: "ls -- -l"},
		{args: "web ls -- -l", command: "ls -- -l"},
		{args: "web -it -c app -- sh -c x", command: "sh -c x", container: "app"},
		{args: "-i web --container=app -t -- sh", command: "sh", container: "app"},
		{args: "web -c app sh", err: "-c stands after the pod: put it before, or -- before the command (see bulkhead exec --help)"},
		{args: "web -c app sh -- x", err: `"sh" stands before --`},
		{args: "web --nosuch -- x", err: "unknown flag: --nosuch"},
		{args: "web -it --", command: ""},
	} {
		root := (&app{}).root()
		usage(root)
		cmd, args, err := root.Find(append([]string{"exec"}, strings.Fields(tc.args)...))
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err != nil {
			t.Fatal(err)
		}
		command, err := lateFlags(cmd, cmd.Flags().Args()[1:])
		if got := strings.Join(command, " "); got != tc.command || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v", tc.args, got, err)
		}
		if got := cmd.Flag("container").Value.String(); err == nil && got != tc.container {
			t.Errorf("%s: container %q", tc.args, got)
		}
	}
}

// TestHabits: what users of podman and kubectl type is known.
func TestHabits(t *testing.T) {
	for _, args := range [][]string{{"ps", "-a"}, {"ps", "--all"}, {"ps", "-aq"}, {"ps", "-A"}, {"events", "-f"}, {"events", "-w"}} {
		cmd, rest, err := Command().Find(args)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
