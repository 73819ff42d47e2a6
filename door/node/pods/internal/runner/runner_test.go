package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

const uid = types.UID("00000000-0000-0000-0000-000000000001")

// stopAndRemove stops and removes a pod with retries, as the controller does. It returns the number of tries.
func (w *world) stopAndRemove(uid types.UID) (tries int) {
	w.t.Helper()
	for tries = 1; tries < 20; tries++ {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		err := w.Stop(ctx, uid, 1)
		if err == nil {
			err = w.Remove(ctx, uid)
		}
		cancel()
		if err == nil {
			return tries
		}
		time.Sleep(time.Second)
	}
	w.t.Error("its end never succeeds")
	return tries
}

// TestEachCallFails: whichever runtime call fails some times, the pod runs once, ends, and leaves nothing.
func TestEachCallFails(t *testing.T) {
	for _, call := range []string{
		"", "RunPodSandbox", "PodSandboxStatus", "ListPodSandbox", "CreateContainer", "StartContainer", "ListContainers",
		"ContainerStatus", "ImageStatus", "PullImage", "StopContainer", "StopPodSandbox", "RemovePodSandbox",
	} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				const times = 3
				w.runtime.fails[call], w.runtime.absent = times, call == "PullImage"
				if err := w.Run(t.Context(), spec("p", uid)); err != nil {
					t.Fatal(err)
				}
				if !w.ready(uid, 10*time.Minute) {
					status, _ := w.Status(uid)
					t.Fatalf("it does not run: %s", &status)
				}
				if n := len(w.left()); n != 1 {
					t.Errorf("it has %d sandboxes", n)
				}
				if given := w.Spec(uid); given == nil || given.Name != "p" || !w.Has(uid) || w.Find("default", "p") == nil {
					t.Errorf("its last specification is %v", given)
				}
				w.stopAndRemove(uid)
				if call != "" && w.runtime.failed[call] == 0 {
					t.Error("the call was not made")
				}
				files, err := os.ReadDir(filepath.Join(w.dir, "pods"))
				if n := len(w.left()); n > 0 || w.Has(uid) || len(files) > 0 || err != nil {
					t.Errorf("%d sandboxes are left, and %v, %v", n, files, err)
				}
			})
		})
	}
}

// TestRunTwice: an existing pod is not created again. A pod that can never run is rejected and leaves nothing.
func TestRunTwice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for range 2 {
			if err := w.Run(t.Context(), spec("p", uid)); err != nil {
				t.Error(err)
			}
			w.ready(uid, time.Minute)
		}
		if n := len(w.left()); n != 1 {
			t.Errorf("it has %d sandboxes", n)
		}
		bad := spec("bad", "00000000-0000-0000-0000-000000000002")
		bad.Spec.Containers = nil
		if err := w.Run(t.Context(), bad); !errors.Is(err, control.ErrRejected) || w.Has(bad.UID) {
			t.Errorf("a pod without containers: %v", err)
		}
		w.stopAndRemove(uid)
		if err := errors.Join(w.Stop(t.Context(), uid, 1), w.Remove(t.Context(), uid), w.Update(t.Context(), spec("p", uid))); err != nil {
			t.Errorf("a removed pod: %v", err)
		}
	})
}

// TestFind: of two pods with the same name and creation time, Find prefers the one that the API server has, and then
// the one that is not being ended. It never returns one of another namespace.
func TestFind(t *testing.T) {
	other := types.UID("00000000-0000-0000-0000-000000000002")
	for name, order := range map[string][]types.UID{"one": {uid, other}, "other": {other, uid}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				for _, one := range order {
					if err := w.Run(t.Context(), spec("p", one)); err != nil || !w.ready(one, time.Minute) {
						t.Fatal(err)
					}
				}
				for range 20 { // the order of a map is random
					w.there = uid
					if got := w.Find("default", "p"); got == nil || got.UID() != uid {
						t.Fatalf("found %v", got)
					}
					w.there = other
					if got := w.Find("default", "p"); got == nil || got.UID() != other {
						t.Fatalf("found %v", got)
					}
				}
				w.there = ""
				if err := w.Stop(t.Context(), uid, 0); err != nil {
					t.Error(err)
				}
				for range 20 {
					if got := w.Find("default", "p"); got == nil || got.UID() != other {
						t.Fatalf("found %v", got)
					}
				}
				if got := w.Find("other", "p"); got != nil {
					t.Errorf("found %v", got)
				}
				w.stopAndRemove(uid)
				w.stopAndRemove(other)
			})
		})
	}
}

// TestTakeOver: the next process continues with an earlier one's pod, and finds out how it ended.
func TestTakeOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if err := w.Run(t.Context(), spec("p", uid)); err != nil || !w.ready(uid, time.Minute) {
			t.Fatal(err)
		}
		before := w.left()[0].Id
		w.Close()
		w.open()
		if !w.ready(uid, time.Minute) || len(w.left()) != 1 || w.left()[0].Id != before {
			t.Errorf("it has %v", w.left())
		}
		w.Close()
		id, _ := w.Get(uid).Container("c")
		if err := w.runtime.StopContainer(t.Context(), id, 0); err != nil {
			t.Fatal(err)
		}
		w.open()
		if !w.ready(uid, 10*time.Minute) {
			t.Error("it is not restarted")
		}
		if status, _ := w.Status(uid); status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("it was restarted %d times", status.ContainerStatuses[0].RestartCount)
		}
		w.stopAndRemove(uid)
	})
}

// TestFree: the sandbox of an evicted pod is removed, its status stays, and failures are returned. A running pod keeps
// its sandbox.
func TestFree(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const other = types.UID("00000000-0000-0000-0000-000000000002")
		for id, name := range map[types.UID]string{uid: "p", other: "q"} {
			if err := w.Run(t.Context(), spec(name, id)); err != nil || !w.ready(id, time.Minute) {
				t.Fatal(err)
			}
		}
		if err := w.Evict(t.Context(), uid, 0, manager.Eviction{Reason: "Evicted", Message: "too little disk"}); err != nil {
			t.Fatal(err)
		}
		w.runtime.mu.Lock()
		w.runtime.fails["RemovePodSandbox"] = 1
		w.runtime.mu.Unlock()
		if err := w.Free(t.Context()); !errors.Is(err, errPassing) || len(w.left()) != 2 {
			t.Errorf("%v, %d left", err, len(w.left()))
		}
		if err := w.Free(t.Context()); err != nil || len(w.left()) != 1 || w.left()[0].Id != w.Get(other).Sandbox() {
			t.Errorf("%v, left: %v", err, w.left())
		}
		w.Close()
		w.open()
		if status, _ := w.Status(uid); status.Phase != corev1.PodFailed || status.Reason != "Evicted" || !w.ready(other, time.Minute) {
			t.Errorf("it is %s, %s", status.Phase, status.Reason)
		}
		w.stopAndRemove(uid)
		w.stopAndRemove(other)
	})
}

// TestHostNetwork: a pod with host network has the node's address, whether or not the runtime reports one.
func TestHostNetwork(t *testing.T) {
	for name, none := range map[string]bool{"one": false, "none": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.runtime.noIP = none
				p := spec("p", uid)
				p.Spec.HostNetwork = true
				if err := w.Run(t.Context(), p); err != nil || !w.ready(uid, time.Minute) {
					t.Fatal(err)
				}
				const all = "[{192.0.2.1}]"
				if status, _ := w.Status(uid); status.PodIP != "192.0.2.1" || fmt.Sprint(status.PodIPs) != all {
					t.Errorf("addresses %s, %v", status.PodIP, status.PodIPs)
				}
				w.stopAndRemove(uid)
			})
		})
	}
}

// TestStatusOfAPodNotYetSeen: a pod that was taken over has no status before the runtime has answered. Options.Changed
// is called then.
func TestStatusOfAPodNotYetSeen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if err := w.Run(t.Context(), spec("p", uid)); err != nil || !w.ready(uid, time.Minute) {
			t.Fatal(err)
		}
		w.Close()
		w.runtime.mu.Lock()
		w.runtime.fails["ListPodSandbox"] = 20 // for that many seconds
		w.runtime.mu.Unlock()
		w.open()
		if status, found := w.Status(uid); found || len(w.Statuses()) > 0 {
			t.Errorf("its status is %s", status.Phase)
		}
		w.changes.Store(0)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		status, found := w.Status(uid)
		if !found || status.Phase != corev1.PodRunning || w.changes.Load() == 0 {
			t.Errorf("then its status is %s, %t, reported %d times", status.Phase, found, w.changes.Load())
		}
		w.stopAndRemove(uid)
	})
}

// TestRuntimeClass: an API server's pod gets its class's handler. A static pod uses the class name as handler.
func TestRuntimeClass(t *testing.T) {
	const static = types.UID("0123456789abcdef0123456789abcdef")
	inWorld(t, func(t *testing.T, w *world) {
		w.Close()
		w.handler = func(_ context.Context, of types.UID) (string, error) {
			if of != uid {
				return "", errPassing
			}
			return "handler", nil
		}
		w.open()
		for of, want := range map[types.UID]string{uid: "handler", static: "class"} {
			p := spec("p-"+string(of[:2]), of)
			p.Spec.RuntimeClassName = new("class")
			if err := w.Run(t.Context(), p); err != nil || !w.ready(of, time.Minute) {
				t.Fatal(err)
			}
			if got := w.runtime.handlers[len(w.runtime.handlers)-1]; got != want {
				t.Errorf("%s was made with %q, want %q", of, got, want)
			}
			w.stopAndRemove(of)
		}
	})
}

// TestViews: one controller handles only static pods, the other only the rest. Of two static pods with one name, the
// second waits for the end of the first.
func TestViews(t *testing.T) {
	const first, second = types.UID("0123456789abcdef0123456789abcdef"), types.UID("fedcba9876543210fedcba9876543210")
	inWorld(t, func(t *testing.T, w *world) {
		var removed []string
		static, bound := w.Static(func(namespace, name string) { removed = append(removed, namespace+"/"+name) }), w.Bound()
		if err := errors.Join(bound.Run(t.Context(), spec("p", uid)), static.Run(t.Context(), spec("p", first))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if fmt.Sprint(bound.All(), static.All()) != fmt.Sprint([]types.UID{uid}, []types.UID{first}) {
			t.Errorf("%v and %v", bound.All(), static.All())
		}
		if err := static.Run(t.Context(), spec("p", second)); !errors.Is(err, control.ErrWaits) || w.Has(second) {
			t.Errorf("another pod of that name: %v", err)
		}
		if err := static.Run(t.Context(), spec("p", first)); err != nil {
			t.Errorf("the same again: %v", err)
		}
		if err := errors.Join(static.Stop(t.Context(), first, 1), static.Remove(t.Context(), first)); err != nil {
			t.Fatal(err)
		}
		if err := static.Run(t.Context(), spec("p", second)); err != nil || fmt.Sprint(removed) != "[default/p]" {
			t.Errorf("after the first one's end: %v, removed %v", err, removed)
		}
		if p := w.FindStatic("default", "p"); p == nil || p.UID != second {
			t.Errorf("the static pod is %v", p)
		}
		w.stopAndRemove(second)
		w.stopAndRemove(uid)
	})
}

// watch records the calls of its methods.
type watch struct {
	mu    sync.Mutex
	notes map[string]int
}

func (w *watch) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[what]++
}

func (w *watch) Seen(p *corev1.Pod) { w.note("seen " + p.Name) }
func (w *watch) Changed(p *corev1.Pod, status func() corev1.PodStatus) {
	w.note(fmt.Sprint("changed ", p.Name, " ", status().Phase))
}
func (w *watch) Event(p *corev1.Pod, e pod.Event) { w.note("event " + p.Name + " " + e.Reason) }
func (w *watch) Probed(p *corev1.Pod, container string, kind probe.Kind, result probe.Result, _ time.Duration) {
	w.note(fmt.Sprint("probed ", p.Name, " ", container, " ", kind, " ", result))
}
func (w *watch) Removed(uid types.UID) { w.note("removed " + string(uid)) }

// TestWatch: Options.Watch is called for all events of a pod.
func TestWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		seen := &watch{notes: map[string]int{}}
		w.watch = seen
		w.Close()
		w.open()
		p := spec("p", uid)
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}},
			PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
		}
		if err := w.Run(t.Context(), p); err != nil || w.ready(uid, time.Minute) {
			t.Fatalf("it is ready, or %v: %v", err, seen.notes)
		}
		w.stopAndRemove(uid)
		w.Forget(uid)
		for _, want := range []string{
			"seen p", "changed p Running", "changed p Failed", "event p Started", "probed p c Readiness failure", "removed " + string(uid),
		} {
			if seen.notes[want] == 0 {
				t.Errorf("%s is missing in %v", want, seen.notes)
			}
		}
	})
}
