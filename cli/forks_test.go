package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine"
)

// TestForksOfAUser: the pods of an ordinary user are forked soon after the first one. Their VMs have no more rights
// than that user's QEMU.
func TestForksOfAUser(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	t.Parallel()
	u := newUser(t, ordinary)
	u.shareTemplates()
	u.loadBusybox()
	const most = 5
	for i := 1; ; i++ {
		name := fmt.Sprintf("p%d", i)
		out, stderr, code := u.run("", "run", "-d", "--timings", "--name", name, "localhost/busybox:test", "sleep", "1000")
		if code != 0 || !strings.Contains(stderr, "bulkhead: VM: ") {
			t.Fatalf("%d, %s%s", code, out, stderr)
		}
		if strings.Contains(stderr, "bulkhead: VM: forked\n") {
			u.confined(t, name)
			break
		}
		_, how, _ := strings.Cut(stderr, "bulkhead: VM: ")
		t.Logf("%s: %q", name, strings.SplitN(how, "\n", 2)[0])
		if i == most {
			t.Fatalf("none of %d pods is a fork", most)
		}
	}
	off := u.must("", "run", "-d", "--warm=off", "--name", "off", "localhost/busybox:test", "sleep", "1000")
	if f := u.facts(t, strings.TrimSpace(off)); f.Forked || f.ForkNote == "" {
		t.Errorf("--warm=off: %+v", f)
	}
	u.must("", "rm", "--force", "--all")
}

func (u *user) facts(t *testing.T, name string) (f engine.Facts) {
	t.Helper()
	if err := json.Unmarshal([]byte(u.must("", "inspect", "--sandbox", "-o", "json", name)), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// confined checks every thread of a pod's QEMU.
func (u *user) confined(t *testing.T, name string) {
	t.Helper()
	f := u.facts(t, name)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", f.VMPID))
	if err != nil || !f.Forked || len(threads) < 2 {
		t.Fatalf("%+v: %d threads, %v", f, len(threads), err)
	}
	for _, path := range threads {
		status, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		lines := strings.Split(string(status), "\n")
		const none = ":\t0000000000000000"
		for _, want := range []string{
			"Uid:\t1717\t1717\t1717\t1717", "Gid:\t1717\t1717\t1717\t1717", "NoNewPrivs:\t1", "Seccomp:\t2",
			"CapInh" + none, "CapPrm" + none, "CapEff" + none, "CapBnd" + none, "CapAmb" + none,
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s lacks %q: %s", path, want, status)
			}
		}
	}
}
