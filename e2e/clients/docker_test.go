package clients

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestDocker plays the life of docker's containers.
func TestDocker(t *testing.T) {
	testturn.SkipUnless(t, 1, 3)
	if testing.Short() {
		t.Skip("boots VMs")
	}
	prepare(t)
	startEngine(t)
	playDocker(t, newSystem(t))
}

// playDocker plays the life of the containers of a system's docker.
func playDocker(t *testing.T, s system) {
	all := runtimes(t)
	if s.root != "/" { // docker 20.10 ignores runtimeType
		all = withFront(all)
	}
	home := t.TempDir()
	var table []string
	for _, r := range all {
		switch r.name {
		case "runc": // docker's own
		case front:
			table = append(table, fmt.Sprintf("%q: {\"runtimeType\": %q}", r.name, r.path))
		default:
			table = append(table, fmt.Sprintf("%q: {\"path\": %q}", r.name, r.path))
		}
	}
	s.write(t, "/etc/docker/daemon.json", `{"runtimes": {`+strings.Join(table, ", ")+`}}`)
	dockerd := s.daemon(t, home, "/usr/sbin/dockerd")
	for i, r := range all {
		e := &engine{oci: r, client: "docker", system: s, daemon: dockerd, create: []string{"--runtime", r.name}, env: clientEnv(home)}
		if i == 0 {
			ctx := testdeadline.Context(t, time.Minute)
			e.await(ctx, t)
			e.do(ctx, t, "load", "--quiet", "--input", prepare(t))
			e.do(ctx, t, "run", "--rm", image, "true")
		}
		lives := slices.Concat(scenarios, dockerScenarios)
		if r.name == front && !testturn.Long() {
			lives = some(lives, "run", "life", "exec", "stop", "limits", "documented")
		}
		t.Run(r.name, func(t *testing.T) { e.play(t, lives) })
	}
}

// await waits until dockerd answers.
func (e *engine) await(ctx context.Context, t *testing.T) {
	t.Helper()
	until(ctx, t, "docker answers", func() bool { return e.try(ctx, t, "", "version").code == 0 })
}

var dockerScenarios = []scenario{
	{name: "names of services", test: dockerNames},
	{name: "network connect", test: dockerConnect},
	{name: "health", test: dockerHealth},
	{name: "restart policy", test: dockerRestarts},
	{name: "init", test: dockerInit},
	{name: "compose", test: dockerCompose},
	{name: "daemon killed", test: dockerKilled},
}

// network creates a user-defined network.
func (e *engine) network(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	e.do(ctx, t, "network", "create", name)
	t.Cleanup(func() { e.do(context.WithoutCancel(ctx), t, "network", "rm", name) })
}

// dockerNames: two services of a project find each other by name, and the outside by docker's name server.
func dockerNames(ctx context.Context, t *testing.T, e *engine) {
	e.network(ctx, t, "project")
	e.start(ctx, t, "project-db", "--network", "project", "--network-alias", "db", "--dns-opt", "use-vc", image,
		"echoserver", "serve", "tcp:5432", "udp:5353", "tcp:53", "udp:53")
	e.start(ctx, t, "project-web", "--network", "project", "--network-alias", "web", image, "sleep", "1000")
	until(ctx, t, "the server's log", func() bool { return e.do(ctx, t, "logs", "project-db") == "serving" })
	address := e.inspect(ctx, t, "project-web", "range .NetworkSettings.Networks}}{{.IPAddress}}{{end")
	for _, server := range []string{"db", "project-db"} {
		e.expect(ctx, t, 0, address+" tcp\n", "exec", "project-web", "echoserver", "dial", "tcp", server+":5432", "tcp")
		e.expect(ctx, t, 0, address+" udp\n", "exec", "project-web", "echoserver", "dial", "udp", server+":5353", "udp")
	}
	// A container may have a name server of its own beside docker's, which it asks by TCP here.
	if o := e.try(ctx, t, "", "exec", "project-db", "echoserver", "dial", "udp", "db:53", "own"); !strings.HasSuffix(o.out, " own\n") {
		t.Errorf("port 53 of a container: %+v", o)
	}
	e.expect(ctx, t, 0, outsideOf+" hello\n", "exec", "project-web", "echoserver", "dial", "tcp", "outside.example:80", "hello")
	if o := e.try(ctx, t, "", "exec", "project-web", "nslookup", "absent"); o.code == 0 || !strings.Contains(o.out, "NXDOMAIN") {
		t.Errorf("an absent name: %+v", o)
	}
}

// dockerConnect: an interface appears in a running container, and goes.
func dockerConnect(ctx context.Context, t *testing.T, e *engine) {
	e.network(ctx, t, "later")
	e.start(ctx, t, "connected", image, "sleep", "1000")
	links := func() int {
		return len(strings.Split(e.do(ctx, t, "exec", "connected", "ip", "-o", "-4", "addr"), "\n"))
	}
	if n := links(); n != 2 {
		t.Errorf("%d addresses, want 2", n)
	}
	e.do(ctx, t, "network", "connect", "later", "connected")
	until(ctx, t, "a third address", func() bool { return links() == 3 })
	e.start(ctx, t, "peer", "--network", "later", image, "echoserver", "serve", "tcp:80")
	until(ctx, t, "the server's log", func() bool { return e.do(ctx, t, "logs", "peer") == "serving" })
	address := e.inspect(ctx, t, "peer", ".NetworkSettings.Networks.later.IPAddress")
	o := e.try(ctx, t, "", "exec", "connected", "echoserver", "dial", "tcp", address+":80", "hello")
	if !strings.HasSuffix(o.out, " hello\n") {
		t.Errorf("through the new interface: %+v", o)
	}
	e.do(ctx, t, "network", "disconnect", "later", "connected")
	until(ctx, t, "two addresses", func() bool { return links() == 2 })
}

// dockerHealth: dockerd runs the health check by itself.
func dockerHealth(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "health", "--health-cmd", "test -e /healthy", "--health-interval", "100ms", "--health-retries", "1",
		image, "sleep", "1000")
	for _, want := range []string{"unhealthy", "healthy"} {
		until(ctx, t, want, func() bool { return e.inspect(ctx, t, "health", ".State.Health.Status") == want })
		e.do(ctx, t, "exec", "health", "touch", "/healthy")
	}
}

// dockerRestarts: dockerd starts a container again that fails.
func dockerRestarts(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "restarts", "--restart", "on-failure:2", image, "sh", "-c", "echo run; exit 3")
	until(ctx, t, "three runs", func() bool { return e.inspect(ctx, t, "restarts", ".State.Status") == "exited" })
	if got := e.inspect(ctx, t, "restarts", ".RestartCount") + " " + e.inspect(ctx, t, "restarts", ".State.ExitCode"); got != "2 3" {
		t.Errorf("restarts and exit code: %s", got)
	}
	e.expect(ctx, t, 0, "run\nrun\nrun\n", "logs", "restarts")
}

// dockerInit: --init makes a program the first process that reaps orphans.
func dockerInit(ctx context.Context, t *testing.T, e *engine) {
	e.expect(ctx, t, 3, "docker-init\n", "run", "--rm", "--init", image,
		"sh", "-c", "tr '\\0' '\\n' </proc/1/cmdline | sed 's|.*/||' | head -n 1; exit 3")
}

// dockerKilled: dockerd is killed, and its containerd with it. The next dockerd ends the container, and starts it again if
// asked. It takes 11 s to answer, so runc proves this test only with the whole tables.
func dockerKilled(ctx context.Context, t *testing.T, e *engine) {
	if !e.vm && !testturn.Long() {
		t.Skip("BULKHEAD_TEST_LONG is not set")
	}
	e.start(ctx, t, "orphan", image, "sh", "-c", "echo run >>/runs; exec sleep 1000")
	until(ctx, t, "it runs", func() bool { return e.try(ctx, t, "", "exec", "orphan", "cat", "/runs").out == "run\n" })
	e.daemon.kill(t)
	e.daemon.start(t)
	e.await(ctx, t)
	if got := e.inspect(ctx, t, "orphan", ".State.Status"); got != "exited" {
		t.Errorf("status after a killed dockerd: %s", got)
	}
	e.do(ctx, t, "start", "orphan")
	until(ctx, t, "it runs again", func() bool { return e.try(ctx, t, "", "exec", "orphan", "cat", "/runs").out == "run\nrun\n" })
}
