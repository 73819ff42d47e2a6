package clients

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testhost/leftover"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// image is the name of the image that the containers of clients use: busybox and the program echo. infra is the same for
// a pod's first container.
const (
	image = "localhost/test:1"
	infra = "localhost/infra:1"
)

// echo is the path of the program echo on the host.
const echo = "/run/test/echo"

// prepare builds the program echo and the image, once for all tests.
func prepare(t *testing.T) (archive string) {
	t.Helper()
	archive = "/run/test/image.tar"
	if _, err := os.Stat(archive); err == nil {
		return archive
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := testgo.Command(t.Context(), "build", "-trimpath", "-ldflags=-s -w", "-o", echo, "./testdata/echo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build echo: %v: %s", err, out)
	}
	binary, err := os.ReadFile(echo)
	if err != nil {
		t.Fatal(err)
	}
	img := appendLayer(t, testimage.BusyboxImage(t), ociimage.File("bin/echoserver", 0o755, string(binary)))
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.Config.Cmd = []string{"sleep", "100000"}
	sleeper, err := mutate.Config(img, config.Config)
	if err != nil {
		t.Fatal(err)
	}
	images := map[name.Tag]v1.Image{name.MustParseReference(image).(name.Tag): img, name.MustParseReference(infra).(name.Tag): sleeper}
	if err := tarball.MultiWriteToFile(archive, images); err != nil {
		t.Fatal(err)
	}
	serveOutside(t)
	return archive
}

func appendLayer(t *testing.T, img v1.Image, entries ...ociimage.Entry) v1.Image {
	t.Helper()
	layer, err := ociimage.Layer(entries)
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// engine is podman or docker with one runtime. Most of their commands are the same.
type engine struct {
	oci
	system
	client string   // podman or docker
	daemon *daemon  // only docker's
	flags  []string // of all commands
	create []string // of run and create
	env    []string
	user   int // the caller of the client
}

// tempDir returns a new directory of the caller's.
func (e *engine) tempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if e.user == 0 {
		return dir
	}
	reachable(t, dir)
	if err := os.Chown(dir, e.user, e.user); err != nil {
		t.Fatal(err)
	}
	return dir
}

// clientEnv is the environment of clients: without the user's configuration.
func clientEnv(home string) []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8", "TERM=xterm",
		"PODMAN_IGNORE_CGROUPSV1_WARNING=1"}
}

// command returns a command of the client. Its directory is not in the sources.
func (e *engine) command(ctx context.Context, args ...string) *exec.Cmd {
	all := append([]string{}, e.flags...)
	all = append(all, args[0])
	if args[0] == "run" || args[0] == "create" {
		all = append(all, e.create...)
	}
	cmd := e.system.command(ctx, "/usr/bin/"+e.client, append(all, args[1:]...)...)
	cmd.Env, cmd.WaitDelay = e.env, 5*time.Second
	return cmd
}

// outcome is the end of a client's command.
type outcome struct {
	code        int
	out, stderr string
}

// try runs a command with input.
func (e *engine) try(ctx context.Context, t *testing.T, input string, args ...string) outcome {
	t.Helper()
	return runClient(ctx, t, e.command(ctx, args...), input)
}

func runClient(ctx context.Context, t *testing.T, cmd *exec.Cmd, input string) outcome {
	t.Helper()
	began := time.Now()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil || errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s: %v: %s%s", strings.Join(cmd.Args, " "), err, &out, &errs)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s: %v: %s%s", strings.Join(cmd.Args, " "), context.Cause(ctx), &out, &errs)
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("%.1f s: %s", took.Seconds(), strings.Join(cmd.Args, " "))
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// do runs a command that must succeed, and returns its output without the last end of line.
func (e *engine) do(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	o := e.try(ctx, t, "", args...)
	if o.code != 0 {
		t.Fatalf("%s %s: exit code %d: %s%s", e.client, strings.Join(args, " "), o.code, o.out, o.stderr)
	}
	return strings.TrimSuffix(o.out, "\n")
}

// expect runs a command, and checks its exit code and output.
func (e *engine) expect(ctx context.Context, t *testing.T, code int, out string, args ...string) {
	t.Helper()
	if o := e.try(ctx, t, "", args...); o.code != code || o.out != out {
		t.Errorf("%s %s: %d, %q, %q, want %d, %q", e.client, strings.Join(args, " "), o.code, o.out, o.stderr, code, out)
	}
}

// start runs a container in the background, which is removed at the test's end.
func (e *engine) start(ctx context.Context, t *testing.T, name string, args ...string) {
	t.Helper()
	e.removeAtEnd(ctx, t, name)
	e.do(ctx, t, append([]string{"run", "--detach", "--name", name}, args...)...)
}

// removeAtEnd removes a container, if it exists, at the test's end.
func (e *engine) removeAtEnd(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), testdeadline.For(30*time.Second))
		defer stop()
		if t.Failed() {
			t.Logf("the log of %s: %+v", name, e.try(ctx, t, "", "logs", name))
		}
		e.remove(ctx, t, name)
	})
}

// remove kills and removes a container, if it exists.
func (e *engine) remove(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	args := []string{"rm", "--force", "--volumes", name}
	if e.client == "podman" {
		args = []string{"rm", "--force", "--volumes", "--time", "0", "--ignore", name}
	}
	if o := e.try(ctx, t, "", args...); o.code != 0 && !strings.Contains(o.stderr, "No such container") {
		t.Errorf("remove %s: %+v", name, o)
	}
}

// inspect returns a field of a container.
func (e *engine) inspect(ctx context.Context, t *testing.T, name, field string) string {
	t.Helper()
	return e.do(ctx, t, "inspect", "--format", "{{"+field+"}}", name)
}

// scenario is a part of the life of containers.
type scenario struct {
	name string
	test func(ctx context.Context, t *testing.T, e *engine)
}

// some returns the scenarios with these names.
func some(all []scenario, names ...string) (chosen []scenario) {
	for _, s := range all {
		if slices.Contains(names, s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// stateDirs have the files of runtimes about their containers.
var stateDirs = []string{"/run/runc", "/run/containerd/runc", "/run/docker/runtime-runc", "/run/containerd/io.containerd.runtime.v2.task"}

// play runs all scenarios of a client, and checks that they leave nothing on the host.
func (e *engine) play(t *testing.T, scenarios []scenario) {
	t.Helper()
	before := leftover.Take(t, stateDirs...)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { s.test(testdeadline.Context(t, time.Minute), t, e) })
	}
	defer func(began time.Time) { t.Logf("left nothing after %v", time.Since(began)) }(time.Now())
	before.ExpectNothingNew(testdeadline.Context(t, 20*time.Second), t, stateDirs...)
}
