package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/bulkhead-project/bulkhead/check"
	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestCheck runs the real command on this host, which can run pods, and on a host without QEMU.
func TestCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	for name, prefix := range map[string][]string{"root": nil, "ordinary": ordinary} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, prefix)
			found := foundBy(t, u, 0, "check", "-o", "json")
			for _, check := range []string{
				"directories", "disk", "memory", "cgroups", "Landlock", "KSM", "shares", "programs", "QEMU", "guest", "accelerator", "boot", "forks",
				"user namespaces", "pasta", "/dev/net/tun", "network",
			} {
				f, ok := found[check]
				if !ok || f.Reason == "" || f.Status == "fail" || f.Status == "warn" && f.Remedy == "" {
					t.Errorf("%s: %+v", check, f)
				}
			}
			if found["boot"].Status != "ok" || found["forks"].Status != "ok" {
				t.Errorf("boot: %+v, forks: %+v", found["boot"], found["forks"])
			}
			_, err := os.Stat(u.dir + "/state/run/run.sock")
			if left := processes(u.dir); err == nil || len(left) > 0 {
				t.Errorf("left running: %v", left)
			}
			table := u.must("", "check")
			if n := strings.Count(table, "\n"); n < len(found) || !strings.Contains(table, "\nQEMU ") || strings.Contains(table, "\x1b") {
				t.Errorf("%d findings, and the table has %d lines: %s", len(found), n, table)
			}
		})
	}
	u := newUser(t, nil)
	u.checkEndedBy(t, syscall.SIGKILL, "signal: killed")
	u.checkEndedBy(t, syscall.SIGTERM, "exit status 143")
	u.checkEndedBy(t, syscall.SIGINT, "exit status 130")
	u = newUser(t, nil, "BULKHEAD_QEMU=/no/such/qemu")
	found := foundBy(t, u, 1, "check", "-o", "yaml")
	if f := found["QEMU"]; f.Status != "fail" || !strings.Contains(f.Remedy, "install") {
		t.Errorf("QEMU: %+v", f)
	}
	if f := found["boot"]; f.Status != "fail" {
		t.Errorf("boot: %+v", f)
	}
	if f := found["forks"]; f.Status != "warn" {
		t.Errorf("forks: %+v", f)
	}
}

// checkEndedBy ends a check by a signal while it has a VM. The VM must end with the check, and the directories must
// vanish with this check or the next one.
func (u *user) checkEndedBy(t *testing.T, signal syscall.Signal, want string) {
	t.Helper()
	ctx := testdeadline.Context(t, 20*time.Second)
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("BULKHEAD_LIBEXEC"), "bulkhead"), "check")
	cmd.Env = u.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	vm, err := vmOf(ctx, cmd.Process.Pid)
	if err != nil {
		t.Errorf("find the VM of the check: %v", err)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != want {
		t.Errorf("ended by %v: %v, want %s", signal, err, want)
	}
	if err := vm.Wait(ctx); err != nil {
		t.Errorf("its VM outlived it: %v, %v", err, vm.Signal(syscall.SIGKILL))
	}
	if left, _ := filepath.Glob(u.dir + "/state/c*"); len(left) > 0 && signal != syscall.SIGKILL {
		t.Errorf("ended by %v, it left %v", signal, left)
	}
}

// vmOf waits until a process has a VM.
func vmOf(ctx context.Context, parent int) (procid.ID, error) {
	for ctx.Err() == nil {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
		for _, task := range tasks {
			children, _ := os.ReadFile(task)
			for child := range strings.FieldsSeq(string(children)) {
				pid, _ := strconv.Atoi(child)
				if slices.Contains(procid.Args(pid), "bulkhead-check") {
					return procid.Of(pid)
				}
			}
		}
		time.Sleep(5 * time.Millisecond) // the kernel does not report another process's children
	}
	return procid.ID{}, context.Cause(ctx)
}

func foundBy(t *testing.T, u *user, code int, args ...string) map[string]check.Finding {
	t.Helper()
	out, stderr, got := u.run("", args...)
	if got != code || (code == 0) != (stderr == "") {
		t.Errorf("%v: exit code %d, %s", args, got, stderr)
	}
	var list []check.Finding
	if err := yaml.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %v", err, out)
	}
	found := map[string]check.Finding{}
	for _, f := range list {
		found[f.Check] = f
	}
	return found
}

// formats checks the output of lists in JSON, YAML and tables, and of inspect, for a user with a running pod.
func (u *user) formats(t *testing.T) {
	for _, tc := range []struct {
		args []string
		into any
		head string
	}{
		{[]string{"ps"}, &[]api.Pod{}, "NAME"},
		{[]string{"image", "ls"}, &[]api.Image{}, "NAME"},
		{[]string{"template", "ls"}, &[]api.Template{}, "KEY"},
		{[]string{"version"}, &api.Version{}, "agent"},
	} {
		if out := u.must("", tc.args...); !strings.HasPrefix(out, tc.head) {
			t.Errorf("%v: %s", tc.args, out)
		}
		asJSON, asYAML := u.must("", append(tc.args, "-o", "json")...), u.must("", append(tc.args, "-o", "yaml")...)
		if err := json.Unmarshal([]byte(asJSON), tc.into); err != nil || !strings.HasSuffix(asJSON, "\n") {
			t.Errorf("%v -o json: %v: %s", tc.args, err, asJSON)
		}
		if b, err := yaml.YAMLToJSONStrict([]byte(asYAML)); err != nil || len(b) < 10 || json.Valid([]byte(asYAML)) {
			t.Errorf("%v -o yaml: %v: %s", tc.args, err, asYAML)
		}
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(u.must("", "inspect", "-o", "yaml", "web")), &pod); err != nil {
		t.Fatal(err)
	}
	condition := corev1.PodCondition{}
	for _, c := range pod.Status.Conditions {
		if c.Type == "io.bulkhead/Machine" {
			condition = c
		}
	}
	if pod.Kind != "Pod" || pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) != len(pod.Spec.Containers) ||
		condition.Status != corev1.ConditionTrue || !strings.Contains(condition.Message, "accelerator ") {
		t.Errorf("inspect: %+v, %+v", pod.Status, condition)
	}
	if out := u.must("", "inspect", "--sandbox", "-o", "json", string(pod.UID)[:8]); !strings.Contains(out, `"vmPID": `) {
		t.Errorf("inspect --sandbox by a prefix of the UID: %s", out)
	}
}

// commands returns all commands below cmd.
func commands(cmd *cobra.Command) (list []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		list = append(append(list, sub), commands(sub)...)
	}
	return list
}

// TestHelp: every command has a description and an example.
func TestHelp(t *testing.T) {
	root := newRoot(&app.App{})
	seen := 0
	for _, cmd := range commands(root) {
		if cmd.Hidden {
			continue
		}
		seen++
		if cmd.Short == "" || !strings.Contains(cmd.Example, "bulkhead "+strings.TrimPrefix(cmd.CommandPath(), "bulkhead ")) {
			t.Errorf("%s: %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: %q ends with a full stop", cmd.CommandPath(), cmd.Short)
		}
	}
	if seen < 25 {
		t.Errorf("%d commands", seen)
	}
}
