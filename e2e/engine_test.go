package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// TestElection: many concurrent first commands find one engine, also if the command that started it was killed
// before it served.
func TestElection(t *testing.T) {
	w := newWorld(t)
	w.shutdown(t)
	var commands []*command
	for range 6 {
		commands = append(commands, w.start(t, "", "ps"))
	}
	if err := kill(commands[0].Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands[1:] {
		if c.wait(t) != 0 {
			t.Error(c)
		}
	}
	engines := func() (n int) {
		for _, p := range w.processes() {
			if p.is("engine") {
				n++
			}
		}
		return n
	}
	// An engine that lost the election may still be ending.
	for deadline := time.Now().Add(testdeadline.For(20 * time.Second)); engines() != 1; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d engines", engines())
		}
	}
	w.checkBound(t)
}

// checkBound: the engine and the processes it starts can never get the capabilities that none of them uses.
func (w *world) checkBound(t *testing.T) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.engine()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "CapBnd:\t")
	bound, err := strconv.ParseUint(strings.SplitN(after, "\n", 2)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range confine.NeverUsed {
		if bound&(1<<c) != 0 && os.Geteuid() == 0 {
			t.Errorf("the engine's bounding set %x has capability %d", bound, c)
		}
	}
}

// TestIdle: an idle engine ends by itself and leaves no process. The next command starts another.
func TestIdle(t *testing.T) {
	w := newWorld(t)
	w.shutdown(t)
	w.idle = "300ms"
	w.must(t, "", "ps")
	for deadline := time.Now().Add(testdeadline.For(20 * time.Second)); len(w.processes()) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still there: %v", w.processes())
		}
	}
	w.must(t, "", "ps")
}

// TestOtherInstance: ps -A shows the remains of another instance's engine, and reap --all removes them. Plain ps
// and plain reap ignore them.
func TestOtherInstance(t *testing.T) {
	w := newWorld(t)
	before := w.calm()
	id := strings.Repeat("ab", 32)
	sum := sha256.Sum256([]byte("default/half/u/0"))
	for path, text := range map[string]string{
		filepath.Join(w.roots().Data, "names/cri", hex.EncodeToString(sum[:])): `{"id": "` + id + `", "key": "default/half/u/0"}`,
		filepath.Join(w.roots().Sandboxes(), id, "pod.json"): `{"version": 2, "id": "` + id + `", "instance": "cri",
			"key": "default/half/u/0", "phase": "starting",
			"record": {"config": {"metadata": {"name": "half", "namespace": "default", "uid": "u"}}}}`,
		filepath.Join(w.roots().Instance("cri"), id, "shim.json"): `{}`,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.must(t, "", "reap")
	if out := w.must(t, "", "ps"); strings.Contains(out, "half") {
		t.Errorf("ps shows another instance's pod: %s", out)
	}
	if out := w.must(t, "", "ps", "-A"); !strings.Contains(out, "half") || !strings.Contains(out, "cri") {
		t.Errorf("ps -A: %s", out)
	}
	if out := w.must(t, "", "reap", "--all"); !strings.Contains(out, "removed 1") {
		t.Errorf("reap --all: %s", out)
	}
	if out := w.must(t, "", "ps", "-A"); strings.Contains(out, "half") {
		t.Errorf("ps -A after the reap: %s", out)
	}
	for _, line := range compare(before, w.census()) {
		// The other instance's directories, its locks and the record of its state directory stay.
		own := func(name string) bool { return strings.HasSuffix(line, name) }
		if !slices.ContainsFunc([]string{"/cri", "/cri.lock", "/cri.state", "engine.lock", "names"}, own) {
			t.Errorf("not as before: %s", line)
		}
	}
}

// TestForegroundOrphan: if the command and the engine of a foreground run are both killed, the next engine ends the
// pod.
func TestForegroundOrphan(t *testing.T) {
	w := newWorld(t)
	c := w.start(t, pod("orphan", "Always", "echo up; exec sleep 1000"), "run", "-q", "-")
	for deadline := time.Now().Add(testdeadline.For(60 * time.Second)); len(w.anyLog(t)) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the pod does not come up")
		}
	}
	// The engine first: a living engine would see its client disconnect and remove the pod.
	for _, pid := range []int{w.engine(), c.Process.Pid} {
		if err := kill(pid); err != nil {
			t.Fatal(err)
		}
	}
	w.must(t, "", "reap")
	if p := w.find(t, "orphan"); p.Phase == "Running" {
		t.Errorf("it outlives its command: %+v", p)
	}
	for _, p := range w.processes() {
		if p.shim() != "" || p.qemu() != "" {
			t.Errorf("left running: %v", p)
		}
	}
	w.must(t, "", "rm", "orphan")
}

// TestEngineKilledUnderRun: if the engine under a command is killed, the command makes the next engine end its pod.
func TestEngineKilledUnderRun(t *testing.T) {
	w := newWorld(t)
	c := w.start(t, pod("left", "Always", "echo up; exec sleep 1000"), "run", "-q", "-")
	for deadline := time.Now().Add(testdeadline.For(60 * time.Second)); len(w.anyLog(t)) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the pod does not come up")
		}
	}
	if err := kill(w.engine()); err != nil {
		t.Fatal(err)
	}
	if code := c.wait(t); code == 0 || !strings.Contains(c.err.String(), "the engine went away") {
		t.Errorf("the command: %v", c)
	}
	for deadline := time.Now().Add(testdeadline.For(60 * time.Second)); ; time.Sleep(100 * time.Millisecond) {
		var left []process
		for _, p := range w.processes() {
			if p.shim() != "" || p.qemu() != "" {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left running: %v", left)
		}
	}
	w.must(t, "", "reap") // waits for pods that are being ended
	if p := w.find(t, "left"); p.Phase == "Running" {
		t.Errorf("it outlives its command: %+v", p)
	}
	w.must(t, "", "rm", "left")
}

// anyLog returns the output of the container of the only pod.
func (w *world) anyLog(t *testing.T) string {
	t.Helper()
	b, _ := os.ReadFile(first(filepath.Join(w.roots().Data, "pods/*/logs/c/0.log")))
	return string(b)
}

// TestLogAcrossEngines: after the engine was killed, a log is followed again without missing or repeated lines, and
// the restart policy still works.
func TestLogAcrossEngines(t *testing.T) {
	w := newWorld(t)
	w.must(t, pod(name, "Always", "echo begun; sleep 1; exit 3"), "run", "-d", "-q", "-")
	if err := kill(w.engine()); err != nil {
		t.Fatal(err)
	}
	w.must(t, "", "ps")
	for deadline := time.Now().Add(testdeadline.For(60 * time.Second)); ; time.Sleep(200 * time.Millisecond) {
		if p := w.find(t, name); p.Restarts > 0 && p.Status == "Running" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not restarted: %+v", w.find(t, name))
		}
	}
	end := w.follow(t, name)
	if err := kill(w.engine()); err != nil {
		t.Fatal(err)
	}
	end("the engine went away")
	end = w.follow(t, name)
	w.shutdown(t)
	end("the engine is stopping")
	if log := w.engineLog(); strings.Contains(log, "cut off") {
		t.Errorf("the engine has waited for the end of the followed log:\n%s", log)
	}
	if out := w.must(t, "", "logs", name); out != "begun\n" {
		t.Errorf("the newest log: %q", out)
	}
}

// follow follows a pod's log and returns after the first line. end waits until the command fails with the reason
// why.
func (w *world) follow(t *testing.T, name string) (end func(why string)) {
	t.Helper()
	c := w.command(testdeadline.Context(t, commandLimit), "logs", "-f", name)
	c.Stderr = &c.err
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("the log begins with %q, %v: %s", line, err, &c.err)
	}
	return func(why string) {
		t.Helper()
		_, _ = io.Copy(io.Discard, lines)
		if err := c.Wait(); err == nil || !strings.Contains(c.err.String(), why) {
			t.Errorf("a log after its engine has ended: %v: %s", err, &c.err)
		}
	}
}

// TestDetachedTogether: of pods that are run together in the background, either all are named or none. If one does
// not start, the others are removed.
func TestDetachedTogether(t *testing.T) {
	w := newWorld(t)
	bad := strings.Replace(pod("second", "Always", "exec sleep 1000"), `image: "`, `image: "localhost:1/`, 1)
	c := w.run(t, pod("first", "Always", "exec sleep 1000")+"---\n"+bad, "run", "-d", "-q", "-")
	if c.ProcessState.ExitCode() == 0 || c.out.Len() > 0 {
		t.Errorf("it names pods that it has removed: %v", c)
	}
	if pods := w.must(t, "", "ps", "-q"); pods != "" {
		t.Errorf("left: %s", pods)
	}
}

// TestExactNames: changing a pod by a prefix of its name fails.
func TestExactNames(t *testing.T) {
	w := newWorld(t)
	w.must(t, pod("web-production", "Always", "exec sleep 1000"), "run", "-d", "-q", "-")
	before := w.find(t, "web-production")
	for _, args := range [][]string{
		{"rm", "-f", "web"},
		{"stop", "web"},
		{"start", "web"},
		{"pause", "web"},
		{"update", "web", "--memory", "64Mi"},
	} {
		if c := w.run(t, "", args...); c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), `pod "web": not found`) {
			t.Errorf("%v: %v", args, c)
		}
	}
	if after := w.find(t, "web-production"); after.Status != "Running" || after.Sandbox != before.Sandbox {
		t.Errorf("it was %+v and is %+v", before, after)
	}
	if out := w.must(t, "", "exec", "web", "--", "echo", "there"); out != "there\n" {
		t.Errorf("by the beginning of its name: %q", out)
	}
	w.must(t, "", "rm", "-f", before.UID[:8])
}
