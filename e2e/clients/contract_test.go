package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestContract calls runtimes as clients do: conmon for podman, containerd's shim for docker and containerd, and CRI-O.
func TestContract(t *testing.T) {
	if testing.Short() {
		t.Skip("boots VMs")
	}
	for _, r := range runtimes(t) {
		t.Run(r.name, func(t *testing.T) {
			if r.vm { // it starts the engine, which the parallel cases share
				crowd(testdeadline.Context(t, 2*time.Minute), t, newContract(t, r))
			}
			for _, group := range [][]contractCase{
				lifeCases, streamCases, execCases, signalCases, processCases, mountCases, hookCases, errorCases, queryCases, updateCases,
				joinCases, userCases,
			} {
				for _, c := range group {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						c.test(patience(t, r), t, newContract(t, r))
					})
				}
			}
		})
	}
}

// startEngine starts the engine, which all cases share. Without systemd, its ancestors live as long as it does.
func startEngine(t *testing.T) {
	t.Helper()
	for _, r := range runtimes(t) {
		if r.vm {
			newContract(t, r).do(patience(t, r), t, "run", "--bundle", writeBundle(t, newSpec("true")), "first")
		}
	}
}

// contractCase is one demand of clients.
type contractCase struct {
	name string
	test func(ctx context.Context, t *testing.T, c *contract)
}

// contract is a runtime with its own directory of states.
type contract struct {
	oci
	root string // of its --root
	dir  string // for other files
}

func newContract(t *testing.T, r oci) *contract {
	t.Helper()
	return &contract{oci: r, root: t.TempDir(), dir: t.TempDir()}
}

// result is the outcome of a runtime's command.
type result struct {
	code           int
	stdout, stderr string
	// logged is the message of the last line of its log.
	logged string
}

// args completes a command with the global flags that containerd's shim uses.
func (c *contract) args(log string, command ...string) []string {
	return append([]string{c.path, "--root", c.root, "--log", log, "--log-format", "json"}, command...)
}

// run runs a command that leaves no process.
func (c *contract) run(ctx context.Context, t *testing.T, command ...string) result {
	t.Helper()
	return c.runInput(ctx, t, "", command...)
}

// runInput is like run, with input.
func (c *contract) runInput(ctx context.Context, t *testing.T, input string, command ...string) result {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	args := c.args(log, command...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	cmd.Dir, cmd.WaitDelay = c.dir, time.Second
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil || errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s: %v", strings.Join(command, " "), err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s: %v: %s%s", strings.Join(command, " "), context.Cause(ctx), &out, &errs)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String(), lastLogged(t, log)}
}

// lastLogged returns the last message of a log in JSON. Clients show it to their users.
func lastLogged(t *testing.T, log string) string {
	t.Helper()
	text, err := os.ReadFile(log)
	if len(text) == 0 || errors.Is(err, os.ErrNotExist) {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	var entry struct{ Level, Msg, Time string }
	if err := json.Unmarshal([]byte(last), &entry); err != nil || entry.Level == "" || entry.Msg == "" {
		t.Fatalf("the last line of the log must be JSON with level and msg: %q, %v", last, err)
	}
	if _, err := time.Parse(time.RFC3339, entry.Time); err != nil {
		t.Errorf("the time in the log: %v", err)
	}
	return entry.Msg
}

// do runs a command that must succeed, and returns its output.
func (c *contract) do(ctx context.Context, t *testing.T, command ...string) string {
	t.Helper()
	r := c.run(ctx, t, command...)
	if r.code != 0 {
		t.Fatalf("%s: exit code %d: %s%s", strings.Join(command, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// fails runs a command that must fail with an exit code and a text in its log and on its standard error.
func (c *contract) fails(ctx context.Context, t *testing.T, code int, text string, command ...string) {
	t.Helper()
	r := c.run(ctx, t, command...)
	if r.code != code || !strings.Contains(r.logged, text) || !strings.Contains(r.stderr, text) {
		t.Errorf("%s: exit code %d, log %q, standard error %q; want %d and %q",
			strings.Join(command, " "), r.code, r.logged, r.stderr, code, text)
	}
}

// created is a container that a monitor has created.
type created struct {
	*process
	id, bundle, pidFile string
}

// create creates a container of a bundle. The container is deleted at the test's end.
func (c *contract) create(ctx context.Context, t *testing.T, id, bundle string, flags ...string) created {
	t.Helper()
	k, code, log := c.tryCreate(ctx, t, id, bundle, flags...)
	if code != 0 {
		t.Fatalf("create: exit code %d: %s%s", code, k.stderr.text(), lastLogged(t, log))
	}
	return k
}

// tryCreate is like create, and returns the command's exit code and its log.
func (c *contract) tryCreate(ctx context.Context, t *testing.T, id, bundle string, flags ...string) (k created, code int, log string) {
	t.Helper()
	dir := t.TempDir()
	k = created{id: id, bundle: bundle, pidFile: filepath.Join(dir, "pid")}
	log = filepath.Join(dir, "log")
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), testdeadline.For(20*time.Second))
		defer stop()
		if r := c.run(ctx, t, "delete", "--force", id); r.code != 0 {
			t.Errorf("delete --force %s: %d: %s", id, r.code, r.stderr)
		}
	})
	command := append([]string{"create", "--bundle", bundle, "--pid-file", k.pidFile}, flags...)
	k.process, code = startMonitored(ctx, t, k.pidFile, nil, c.args(log, append(command, id)...)...)
	return k, code, log
}

// start creates and starts a container of a specification.
func (c *contract) start(ctx context.Context, t *testing.T, id string, spec *specs.Spec, flags ...string) created {
	t.Helper()
	k := c.create(ctx, t, id, writeBundle(t, spec), flags...)
	c.do(ctx, t, "start", id)
	return k
}

// output runs a container of a specification to its end, and returns its standard output. It must exit with 0.
func (c *contract) output(ctx context.Context, t *testing.T, spec *specs.Spec) string {
	t.Helper()
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 0)
	return k.stdout.all(ctx, t)
}

// exec runs a script in a running container and returns its output.
func (c *contract) exec(ctx context.Context, t *testing.T, id, text string) string {
	t.Helper()
	return c.do(ctx, t, "exec", id, "sh", "-c", text)
}

// state is the state of a container as runc prints it.
type state struct {
	specs.State
	Rootfs, Owner string
	Created       time.Time
}

func (c *contract) state(ctx context.Context, t *testing.T, id string) (s state) {
	t.Helper()
	text := c.do(ctx, t, "state", id)
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("state: %v: %s", err, text)
	}
	return s
}

// awaitStatus waits until a container has a status.
func (c *contract) awaitStatus(ctx context.Context, t *testing.T, id string, want specs.ContainerState) {
	t.Helper()
	until(ctx, t, "status "+string(want), func() bool { return c.state(ctx, t, id).Status == want })
}
