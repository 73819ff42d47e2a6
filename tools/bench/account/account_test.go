package account

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

func TestParseStat(t *testing.T) {
	got, err := parseStat("usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n")
	if err != nil || got != 1500*time.Microsecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "user_usec 3\n", "usage_usec x\n"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q is taken for a cpu.stat", bad)
		}
	}
}

// TestUsed counts a command with a child that outlives it, if the host allows it for this user.
func TestUsed(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	a, err := Open("bulkhead-account-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		if os.Getuid() == 0 {
			t.Fatal(err)
		}
		t.Logf("nothing to count with: %v", err)
		return
	}
	before, err := a.Used()
	if err != nil {
		t.Error(err)
	}
	const work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
	cmd := exec.CommandContext(ctx, "sh", "-c", "("+work+") & exit 0")
	if err := a.Start(cmd, (*exec.Cmd).Start); err != nil {
		t.Error(err)
	} else if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	// It waits for the child, so that the child's time is counted.
	if err := a.inner.Delete(ctx); err != nil {
		t.Error(err)
	}
	if after, err := a.Used(); err != nil || after-before < 10*time.Millisecond {
		t.Errorf("%s were used: %v", after-before, err)
	}
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(a.dir); err == nil {
		t.Error("the group still exists")
	}
}

func TestNone(t *testing.T) {
	var a *Account
	if _, err := a.Used(); err == nil {
		t.Error("a nil account counts")
	}
	if err := a.Start(exec.CommandContext(t.Context(), "true"), (*exec.Cmd).Run); err != nil {
		t.Error(err)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
