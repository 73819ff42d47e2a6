package e2e

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfaults"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// sampleSize is the number of the table's cells in an ordinary run.
const sampleSize = 16

// TestKill kills the command, the engine, the shim and QEMU at each point of a pod's life, lets a reap clean up,
// and checks what is left. An older pod must continue undisturbed.
//
// Without BULKHEAD_TEST_LONG=1 it runs the day's part of the table. BULKHEAD_TEST_SAMPLE=N chooses another day's
// part. To repeat one cell, give its name: go test ./e2e -run 'TestKill/run/shim.spawned/qemu$'.
func TestKill(t *testing.T) {
	cells := table()
	named := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if !testturn.Long() && !named {
		day := testturn.Day()
		cells = sample(cells, day, sampleSize)
		t.Logf("sample %d of the table: %s", day, names(cells))
	}
	w := newWorld(t)
	s := newSurvivor(t, w)
	w.must(t, "", "volume", "create", "first", "--shared") // the directory of volumes is created once
	w.must(t, "", "volume", "rm", "first")
	if os.Geteuid() == 0 {
		w.firstContainer(t)
	}
	before := w.calm()
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			k := &killing{world: w, cell: c, survivor: s, before: before}
			began := time.Now()
			k.run(t)
			took := time.Since(began).Round(10 * time.Millisecond)
			t.Logf("took %v", took)
			if took > 15*time.Second {
				t.Logf("the engine's log:\n%s", w.engineLog())
			}
		})
		if t.Failed() {
			before = w.calm() // so that the next cell is not blamed for what this one left
		}
	}
}

// killing runs one cell.
type killing struct {
	*world
	cell     cell
	survivor *survivor
	before   []string
}

func (k *killing) run(t *testing.T) {
	defer func() { k.warm = "off" }()
	scenarios[k.cell.scenario](k, t)
	k.faults.Disarm()
	if k.warm != "off" {
		k.warm = "off"
		k.shutdown(t) // with its warm VMs
	}
	if c := k.world.run(t, "", "reap"); c.ProcessState.ExitCode() != 0 {
		t.Error(c)
	}
	k.clear(t)
	if left := k.awaitSame(k.before); len(left) > 0 {
		t.Errorf("not as before:\n%s", strings.Join(left, "\n"))
	}
	k.survivor.check(t)
}

// name is the name of the pod in the scenarios.
const name = "victim"

// job is a pod that ends by itself, after more time than any step takes.
var job = pod(name, "Never", "echo one; sleep 1; echo two")

// scenarios bring a command to the cell's point, kill the victim, and check the state before a reap.
var scenarios = map[string]func(k *killing, t *testing.T){
	"run": func(k *killing, t *testing.T) { k.foreground(t, job, "-") },
	"forked": func(k *killing, t *testing.T) {
		k.warmUp(t)
		k.foreground(t, job, "-")
	},
	"block": (*killing).withDisk,
	"warm":  (*killing).warming,
	"stop":  func(k *killing, t *testing.T) { k.ending(t, "stop", name) },
	"rm":    func(k *killing, t *testing.T) { k.ending(t, "rm", "-f", name) },
	"start": (*killing).startAgain,
	"adopt": (*killing).adopt,

	"oci-create": func(k *killing, t *testing.T) { k.container(t, 0, "create", "--bundle", k.bundle(t)) },
	"oci-start":  func(k *killing, t *testing.T) { k.container(t, 1, "start") },
	"oci-delete": func(k *killing, t *testing.T) { k.container(t, 2, "delete", "--force") },

	"reap": (*killing).reapAgain,

	"make-volume":   (*killing).createVolume,
	"remove-volume": (*killing).removeVolume,
}

// withDisk kills during a run with a disk of the host. The next pod must be able to use the disk.
func (k *killing) withDisk(t *testing.T) {
	k.must(t, "", "volume", "create", "disk")
	k.foreground(t, "", "--name", name, "-v", "disk:/v", image, "sh", "-c", "echo one; echo kept >/v/file; sleep 1; echo two")
	k.must(t, "", "reap")
	if out := k.must(t, "", "run", "--rm", "-q", "-v", "disk:/v", image, "sh", "-c", "echo there; cat /v/file || true"); out != "there\n" &&
		out != "there\nkept\n" {
		t.Errorf("the next pod's disk: %q", out)
	}
	k.must(t, "", "volume", "rm", "disk")
}

// foreground kills during a foreground run of that document, or with those arguments.
func (k *killing) foreground(t *testing.T, document string, args ...string) {
	args = append([]string{"run", "--rm", "-q"}, args...)
	c := k.strike(t, func() *command { return k.start(t, document, args...) })
	code, out := c.wait(t), c.out.String()
	switch k.cell.victim {
	case "engine":
		// At cli.sending the request was not sent yet.
		if code == 0 && k.cell.point != "cli.sending" {
			t.Errorf("a killed run reports success: %v", c)
		}
	case "parent":
		if code != 0 || out != "one\ntwo\n" {
			t.Errorf("a pod fails without its parent: %v", c)
		}
	case "qemu":
		// A VM that dies before it belongs to a pod is replaced.
		if code == 0 && (out != "one\ntwo\n" || strings.HasPrefix(k.cell.point, "task.") || strings.HasPrefix(k.cell.point, "container.") ||
			strings.HasPrefix(k.cell.point, "disk.") || strings.HasPrefix(k.cell.point, "volume.")) {
			t.Errorf("a run that must have failed reports success: %v", c)
		}
	case "shim":
		if code == 0 && out != "one\ntwo\n" || code != 0 && code != 125 {
			t.Errorf("neither continued nor failed: %v", c)
		}
	}
	if code > 0 && strings.Count(strings.TrimSpace(c.err.String()), "\n") > 2 {
		t.Errorf("not a short error: %v", c)
	}
}

// warmUp makes an engine fork VMs.
func (k *killing) warmUp(t *testing.T) {
	t.Helper()
	k.shutdown(t)
	k.warm = "on"
	made := k.arm("warm.proven")
	k.must(t, pod("first", "Never", "true"), "run", "--rm", "-q", "-")
	await(t, made, nil).Release()
}

// warming kills while a warm VM is created.
func (k *killing) warming(t *testing.T) {
	k.shutdown(t)
	k.warm = "on"
	hit := k.arm(k.cell.point)
	k.must(t, pod("first", "Never", "true"), "run", "--rm", "-q", "-")
	k.strikeAt(t, func() <-chan testfaults.Stop { return hit }, nil)
}

// ending kills while a running pod is stopped or removed.
func (k *killing) ending(t *testing.T, args ...string) {
	k.must(t, pod(name, "Always", "trap 'exit 0' TERM; while :; do sleep 0.1; done"), "run", "-d", "-q", "-")
	c := k.strike(t, func() *command { return k.start(t, "", args...) })
	code := c.wait(t)
	if k.cell.victim == "qemu" && code != 0 {
		t.Errorf("a VM that dies during the stop makes it fail: %v", c)
	}
}

// startAgain kills while a stopped pod is started. Its emptyDir must lose nothing.
func (k *killing) startAgain(t *testing.T) {
	k.must(t, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`}, spec: {terminationGracePeriodSeconds: 0,
  volumes: [{name: v, emptyDir: {}}],
  containers: [{name: c, image: "`+image+`", command: [sleep, "1000"],
    volumeMounts: [{name: v, mountPath: /v}]}]}}`, "run", "-d", "-q", "-")
	k.must(t, "", "exec", name, "--", "sh", "-c", "echo kept >/v/file")
	k.must(t, "", "stop", name)
	k.strike(t, func() *command { return k.start(t, "", "start", name) }).wait(t)
	k.must(t, "", "reap")
	for deadline := time.Now().Add(commandLimit); ; time.Sleep(100 * time.Millisecond) {
		c := k.world.run(t, "", "exec", name, "--", "cat", "/v/file")
		if c.ProcessState.ExitCode() == 0 {
			if c.out.String() != "kept\n" {
				t.Errorf("the emptyDir has %q", c.out.String())
			}
			return
		}
		if time.Now().After(deadline) || strings.Contains(c.err.String(), "No such file") {
			t.Fatalf("the emptyDir is lost: %v", c)
		}
		k.world.run(t, "", "start", name) // unless it starts by itself
	}
}

// adopt kills while another shim takes over a pod.
func (k *killing) adopt(t *testing.T) {
	k.must(t, pod(name, "Always", counting), "run", "-d", "-q", "-")
	id := k.sandbox(t, name)
	hit := k.arm(k.cell.point)
	for _, p := range k.processes() {
		if p.shim() == id {
			if err := kill(p.pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.strikeAt(t, func() <-chan testfaults.Stop { return hit }, nil)
	k.must(t, "", "reap")
	for deadline := time.Now().Add(testdeadline.For(30 * time.Second)); ; time.Sleep(100 * time.Millisecond) {
		c := k.world.run(t, "", "exec", name, "--", "echo", "there")
		if c.out.String() == "there\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pod is not back: %v", c)
		}
	}
	if k.cell.victim != "qemu" {
		if again := k.sandbox(t, name); again != id {
			t.Errorf("sandbox %s has become %s", id, again)
		}
		checkCounting(t, k.log(t, name))
	}
}

// reapAgain kills the process that cleans up after a killed one.
func (k *killing) reapAgain(t *testing.T) {
	hit := k.arm("run.start")
	c := k.start(t, job, "run", "--rm", "-q", "-")
	s := await(t, hit, c)
	// The command first: it would start the next engine, which cleans up.
	for _, pid := range []int{c.Process.Pid, s.PID} {
		if err := kill(pid); err != nil {
			t.Fatal(err)
		}
	}
	c.wait(t)
	k.strike(t, func() *command { return k.start(t, "", "reap") }).wait(t)
}

// clear removes the pod if it is still listed.
func (k *killing) clear(t *testing.T) {
	t.Helper()
	for _, pod := range strings.Fields(k.must(t, "", "ps", "-q")) {
		if pod != k.survivor.name {
			if k.cell.scenario == "run" || k.cell.scenario == "forked" || k.cell.scenario == "block" {
				t.Errorf("pod %s is left of a run that removes it", pod)
			}
			k.must(t, "", "rm", "-f", pod)
		}
	}
}

// arm stops the next process that reaches point, except those of the survivor.
func (k *killing) arm(point string) <-chan testfaults.Stop {
	return k.faults.Arm(func(h fault.Hit) bool {
		return h.Point == point && process{h.PID, h.Args}.shim() != k.survivor.sandbox
	})
}

// strike starts a command, kills the victim at the cell's point and lets everything continue.
func (k *killing) strike(t *testing.T, start func() *command) *command {
	t.Helper()
	hit := k.arm(k.cell.point)
	c := start()
	k.strikeAt(t, func() <-chan testfaults.Stop { return hit }, c)
	return c
}

func (k *killing) strikeAt(t *testing.T, hit func() <-chan testfaults.Stop, c *command) {
	t.Helper()
	s := await(t, hit(), c)
	defer s.Release()
	for _, pid := range k.victim(t, s, c) {
		if err := kill(pid); err != nil {
			t.Fatalf("kill the %s: %v", k.cell.victim, err)
		}
	}
}

// await returns the process that stops at the armed point.
func await(t *testing.T, hit <-chan testfaults.Stop, c *command) testfaults.Stop {
	t.Helper()
	var ended chan struct{}
	if c != nil {
		ended = c.ended
	}
	select {
	case s := <-hit:
		return s
	case <-ended:
		select {
		case s := <-hit:
			return s
		default:
		}
		if strings.Contains(t.Name(), "cgroup") {
			t.Skip("this host gives pods no cgroup")
		}
		t.Fatalf("ended without coming to the point: %v", c)
	case <-time.After(testdeadline.For(commandLimit)):
		t.Fatal("no process reaches the point")
	}
	panic("unreachable")
}

// victim finds the processes to kill. They may just be starting.
func (k *killing) victim(t *testing.T, s testfaults.Stop, c *command) []int {
	t.Helper()
	switch k.cell.victim {
	case "cli":
		return []int{c.Process.Pid}
	case "engine":
		if process := (process{s.PID, s.Args}); process.is("engine") {
			return []int{s.PID}
		}
		return []int{k.engine()}
	}
	for deadline := time.Now().Add(testdeadline.For(10 * time.Second)); ; time.Sleep(5 * time.Millisecond) {
		var found []int
		for _, p := range k.processes() {
			mine := k.survivor.sandbox
			switch {
			case k.cell.victim == "shim" && p.shim() != "" && p.shim() != mine,
				k.cell.victim == "qemu" && strings.HasPrefix(p.qemu(), "bulkhead-") && p.qemu() != "bulkhead-"+mine[:12] && !p.warm(),
				k.cell.victim == "parent" && p.warm(),
				(k.cell.victim == "surrogate" || k.cell.victim == "share") && p.is(k.cell.victim):
				found = append(found, p.pid)
			}
		}
		if len(found) > 0 {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s to kill at %s; there are %s", k.cell.victim, s.Point, fmt.Sprint(k.processes()))
		}
	}
}
