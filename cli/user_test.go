package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testtemplate"
)

// ordinary runs a program as an ordinary user without any capability.
var ordinary = []string{"setpriv", "--reuid=1717", "--regid=1717", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"}

// user runs bin/bulkhead as some user, with separate directories.
type user struct {
	t      *testing.T
	prefix []string // a command that changes the user
	env    []string
	dir    string
}

// run runs a command and returns its output and its exit code.
func (u *user) run(stdin string, args ...string) (stdout, stderr string, code int) {
	u.t.Helper()
	testgo.NeedTree()
	ctx, cancel := context.WithTimeout(u.t.Context(), 90*time.Second)
	defer cancel()
	args = append(append(append([]string{}, u.prefix...), filepath.Join(os.Getenv("BULKHEAD_LIBEXEC"), "bulkhead")), args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, err bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", u.env, strings.NewReader(stdin), &out, &err
	if e := cmd.Run(); e != nil && cmd.ProcessState == nil {
		u.t.Fatal(e)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that must succeed.
func (u *user) must(stdin string, args ...string) string {
	u.t.Helper()
	out, stderr, code := u.run(stdin, args...)
	if code != 0 {
		u.t.Fatalf("bulkhead %s: exit code %d: %s%s", strings.Join(args, " "), code, out, stderr)
	}
	return out
}

// newUser creates a user without any files. At the end of the test, its engine and everything else must be gone.
// Its directories are dir/data and dir/state.
func newUser(t *testing.T, prefix []string, env ...string) *user {
	t.Helper()
	dir := os.Getenv(worldHome)
	if dir == "" {
		dir = shortDir(t, prefix)
	}
	u := &user{t: t, prefix: prefix, dir: dir, env: append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "BULKHEAD_DATA=" + dir + "/data", "BULKHEAD_STATE=" + dir + "/state",
		"BULKHEAD_LIBEXEC=" + os.Getenv("BULKHEAD_LIBEXEC"), "BULKHEAD_GUEST=" + os.Getenv("BULKHEAD_GUEST"),
	}, env...)}
	t.Cleanup(func() {
		u.nothingLeft()
		if t.Failed() {
			log, err := os.ReadFile(dir + "/state/run/engine.log")
			t.Logf("the engine's log (%v):\n%s", err, log)
		}
	})
	return u
}

// shortDir creates a directory for a user, with a short path, because sockets lie below it.
func shortDir(t *testing.T, prefix []string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if prefix != nil {
		if err := os.Chown(dir, 1717, 1717); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// rootsIn returns the roots of a user with the home directory dir.
func rootsIn(dir string) dirs.Roots { return dirs.Roots{Data: dir + "/data", State: dir + "/state"} }

// shareTemplates gives the user the templates of earlier tests. Tests of templates must not use it.
func (u *user) shareTemplates() {
	u.t.Helper()
	testtemplate.Share(u.t, u.dir, rootsIn(u.dir))
}

// loadBusybox gives the user localhost/busybox:test.
func (u *user) loadBusybox() {
	u.t.Helper()
	layout := filepath.Join(u.dir, "image")
	for _, args := range [][]string{{"cp", "-r", testimage.Busybox(u.t), layout}, {"chmod", "-R", "a+rX", layout}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			u.t.Fatalf("%v: %s", err, out)
		}
	}
	u.loadBusyboxAgain()
}

// loadBusyboxAgain is loadBusybox for a user that had it before.
func (u *user) loadBusyboxAgain() {
	u.t.Helper()
	u.must("", "image", "load", "--quiet", "oci:"+filepath.Join(u.dir, "image"), "localhost/busybox:test")
}

// nothingLeft stops the engine and searches for processes that name the user's directories.
func (u *user) nothingLeft() {
	u.t.Helper()
	if _, err := os.Stat(u.dir + "/state/run/run.sock"); err != nil {
		return // there was never one
	}
	client := exec.Command("curl", "-s", "--max-time", "20", "-X", "POST",
		"--unix-socket", u.dir+"/state/run/run.sock", "http://engine/v1/shutdown")
	if out, err := client.CombinedOutput(); err != nil {
		u.t.Errorf("end the engine: %v: %s", err, out)
	}
	deadline := time.Now().Add(15 * time.Second)
	for {
		left := processes(u.dir)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			u.t.Errorf("left running: %v", left)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func processes(dir string) (found []string) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range list {
		if filepath.Base(p) == strconv.Itoa(os.Getpid()) {
			continue
		}
		cmdline, err1 := os.ReadFile(p + "/cmdline")
		env, err2 := os.ReadFile(p + "/environ")
		if err1 == nil && err2 == nil && (bytes.Contains(cmdline, []byte(dir)) || bytes.Contains(env, []byte(dir+"/state"))) {
			found = append(found, filepath.Base(p)+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return found
}
