package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/client"
)

// TestDamage truncates each file that a pod depends on to half its size, without an engine, for running and for
// ended pods. In each case the next command names the file or works without it. rm -f removes the pod, nothing is
// left, and the other pod does not notice.
func TestDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newSurvivor(t, w)
	before := w.calm()
	state := func(id, name string) string { return filepath.Join(w.roots().Instance(client.Instance), id, name) }
	data := func(id, name string) string { return filepath.Join(w.roots().Sandboxes(), id, name) }
	for _, tc := range []struct {
		name    string
		path    func(uid, id string) string
		running bool // the file exists only while the pod runs
		shim    bool // also kill the shim, so that the file is read again
	}{
		{"the shim's state.json", func(_, id string) string { return state(id, "state.json") }, true, true},
		{"the shim's config.json", func(_, id string) string { return state(id, "config.json") }, true, true},
		{"the shim's shim.json", func(_, id string) string { return state(id, "shim.json") }, true, true},
		{"the engine's pod.json", func(_, id string) string { return data(id, "pod.json") }, false, false},
		{"the journal", func(_, id string) string { return data(id, "journal") }, false, false},
		{"the engine's pod.json", func(uid, _ string) string { return filepath.Join(w.roots().Data, "pods", uid, "pod.json") }, false, false},
		{"a container.json", func(_, id string) string { return first(data(id, "containers/*/container.json")) }, false, false},
	} {
		for _, running := range []bool{true, false} {
			if tc.running && !running {
				continue
			}
			name := tc.name + " of a pod that has ended"
			if running {
				name = tc.name + " of a running pod"
			}
			t.Run(name, func(t *testing.T) {
				d := &damage{w, t}
				d.run(running, tc.shim, tc.path)
				if left := w.awaitSame(before); len(left) > 0 {
					t.Errorf("not as before:\n%s", strings.Join(left, "\n"))
				}
				s.check(t)
			})
			if t.Failed() {
				before = w.calm()
			}
		}
	}
}

func first(pattern string) string {
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		return pattern
	}
	return found[0]
}

// damage is one case of TestDamage.
type damage struct {
	w *world
	t *testing.T
}

func (d *damage) run(running, shim bool, path func(uid, id string) string) {
	w, t := d.w, d.t
	w.must(t, pod(name, "Always", "exec sleep 1000"), "run", "-d", "-q", "-")
	p := w.find(t, name)
	if !running {
		w.must(t, "", "stop", "-t", "0", name)
	}
	w.shutdown(t)
	file := path(p.UID, p.Sandbox)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	if shim {
		for _, p := range w.processes() {
			if p.shim() != "" && p.shim() == w.sandboxOf(file) {
				if err := kill(p.pid); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// The engine starts anyway, and other pods work.
	reap := w.run(t, "", "reap")
	exec := w.run(t, "", "exec", name, "--", "true")
	output := reap.err.String() + exec.err.String() + w.engineLog()
	if (reap.ProcessState.ExitCode() != 0 || exec.ProcessState.ExitCode() != 0) && !strings.Contains(output, filepath.Base(file)) && running {
		t.Errorf("neither command names %s: %v %v", file, reap, exec)
	}
	// Remove it by its name in ps. The damage may have ended or restarted the pod, which is removed too.
	for range 2 {
		if !strings.Contains(w.must(t, "", "ps", "-q"), name) {
			break
		}
		began := time.Now()
		if c := w.run(t, "", "rm", "-f", name); c.ProcessState.ExitCode() != 0 {
			t.Errorf("after %v: %v", time.Since(began), c)
		}
		for _, left := range w.processes() {
			if left.shim() == p.Sandbox {
				t.Errorf("the pod is removed, and its process %d runs on: %q", left.pid, left.args)
			}
		}
	}
	if c := w.run(t, "", "reap"); c.ProcessState.ExitCode() != 0 {
		t.Error(c)
	}
}

// sandboxOf returns the sandbox that this file belongs to.
func (w *world) sandboxOf(file string) string {
	for dir := file; len(dir) > 1; dir = filepath.Dir(dir) {
		if base := filepath.Base(dir); len(base) == 64 {
			return base
		}
	}
	return ""
}
