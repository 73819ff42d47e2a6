package cri

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// squatter is a process of a user that no end of a shim reaches.
func squatter(t *testing.T, uid int, script string) procid.ID {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	id, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestEndIsNotTheShimsWord: what a pod's directory tells of its end, that it
// has ended or that it cannot, decides nothing. Whatever runs as the pod's user
// is killed before that user is given back.
func TestEndIsNotTheShimsWord(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only under root do pods have users of their own")
	}
	for name, lie := range map[string]func(w *world){
		"the shim says that it has ended": func(*world) {},
		"there is no shim":                func(w *world) { clear(w.shims) },
		"the shim fails":                  func(w *world) { w.fail["ShutdownSandbox"] = errInjected },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			o := testOptions(t, testRoots(t))
			o.Pool = -1
			s := fakeEngine(t, w, o)
			id, err := s.RunPodSandbox(t.Context(), podConfig("p"), "")
			if err != nil {
				t.Fatal(err)
			}
			owned, err := s.podUsers(id)
			if err != nil || len(owned) != 1 {
				t.Fatalf("the pod's users: %v, %v", owned, err)
			}
			processes := []procid.ID{squatter(t, owned[0], "sleep 60"), squatter(t, owned[0], "kill -STOP $$")}
			other := squatter(t, uids.First+uids.Count+1, "sleep 60")
			w.mu.Lock()
			lie(w)
			w.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := s.RemovePodSandbox(ctx, id); err != nil {
				t.Fatal(err)
			}
			for _, p := range processes {
				if p.Alive() {
					t.Errorf("process %d of the pod's user lives on", p.PID)
				}
			}
			if !other.Alive() {
				t.Error("another user's process was killed")
			}
		})
	}
}

// TestSaysIt: only a shim and a machine of this very pod are taken for it.
func TestSaysIt(t *testing.T) {
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		args []string
		want bool
	}{
		{[]string{"bulkhead-shim", "default", id}, true},
		{[]string{"/usr/bin/qemu", "-name", "bulkhead-bulkhead-0123456789ab", "-nodefaults"}, true},
		{[]string{"bulkhead-shim", "default", "f" + id[1:]}, false},
		{[]string{"bulkhead", "rm", id}, false},
		{[]string{"crictl", "rmp", id}, false},
		{[]string{"/usr/bin/qemu", "-name", "bulkhead-template-0123456789ab"}, false},
		{[]string{"/usr/bin/qemu", "-name"}, false},
		{nil, false},
	} {
		if got := saysIt(test.args, id); got != test.want {
			t.Errorf("%q: %v", test.args, got)
		}
	}
}
