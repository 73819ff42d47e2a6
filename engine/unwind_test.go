package engine_test

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// squatter is a process of a pod's user that does not end with the shim.
func squatter(t *testing.T, uid int, script string) procid.ID {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return testproc.Start(t, cmd)
}

// TestEndIsNotTheShimsWord checks that the files in a pod's directory do not decide about its end. All processes of
// the pod's user are killed before the user is released.
func TestEndIsNotTheShimsWord(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only under root do pods have users of their own")
	}
	for name, lie := range map[string]func(w *enginetest.World){
		"the shim says that it has ended": func(*enginetest.World) {},
		"there is no shim":                func(w *enginetest.World) { w.Reboot() },
		"the shim fails":                  func(w *enginetest.World) { w.Fail("ShutdownSandbox", enginetest.ErrInjected) },
	} {
		t.Run(name, func(t *testing.T) {
			w := enginetest.New()
			o := w.In(enginetest.Options(t, enginetest.Roots(t)))
			e := enginetest.Open(t, o)
			id, err := e.StartPod(t.Context(), podRequest("p"))
			if err != nil {
				t.Fatal(err)
			}
			owned, err := e.PodUsers(id)
			if err != nil || len(owned) != 1 {
				t.Fatalf("the pod's users: %v, %v", owned, err)
			}
			processes := []procid.ID{squatter(t, owned[0], "sleep 60"), squatter(t, owned[0], "kill -STOP $$")}
			neighbour, err := uids.Reserve(o.Users, "another pod")
			if err != nil {
				t.Fatal(err)
			}
			others := []procid.ID{squatter(t, uids.First+uids.Count+1, "sleep 60"), squatter(t, neighbour, "sleep 60")}
			lie(w)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := e.RemovePod(ctx, id); err != nil {
				t.Fatal(err)
			}
			for _, p := range processes {
				if p.Alive() {
					t.Errorf("process %d of the pod's user is still alive", p.PID)
				}
			}
			for _, other := range others {
				if !other.Alive() {
					t.Error("another user's process was killed")
				}
			}
		})
	}
}

// TestReapedAgain checks that a failed undo is retried later without a request.
func TestReapedAgain(t *testing.T) {
	w := enginetest.New()
	o := w.In(enginetest.Options(t, enginetest.Roots(t)))
	o.ReapEvery = 10 * time.Millisecond
	e := enginetest.Open(t, o)
	w.Fail("StartSandbox", enginetest.ErrInjected)
	w.Fail("Detach", enginetest.ErrInjected)
	if _, err := e.StartPod(t.Context(), podRequest("p")); err == nil {
		t.Fatal("started")
	}
	left := func() bool {
		entries, err := os.ReadDir(o.Roots.Sandboxes())
		return err != nil || len(entries) > 0
	}
	if !left() {
		t.Fatal("there is nothing to undo")
	}
	w.Fail("Detach", nil)
	until(t, "the pod's rest is undone", func() bool { return !left() })
	if w.Networks() != 0 {
		t.Error("its network is left")
	}
}
