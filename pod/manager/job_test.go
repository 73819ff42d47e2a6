package manager

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// jobPod returns a pod of a Job with this parallelism.
func jobPod(job string, number, parallel int, command ...string) *corev1.Pod {
	p := spec(fmt.Sprintf("%s-%d", job, number), command...)
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: types.UID(job)}}
	p.Annotations = map[string]string{podspec.AnnotationParallelism: fmt.Sprint(parallel)}
	return p
}

// runJob adds the pods of a Job, in any order, and waits until they are idle.
func (w *world) runJob(m *Manager, count, parallel int, change ...func(*Record)) {
	w.t.Helper()
	var all []*Pod
	for i := count - 1; i >= 0; i-- {
		rec := Record{Pod: jobPod("sum", i, parallel)}
		for _, c := range change {
			c(&rec)
		}
		p, err := m.Add(rec, Objects{})
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, p)
	}
	for _, p := range all {
		p.Run()
	}
	synctest.Wait()
}

// exit ends the container of a pod.
func (w *world) exit(p *Pod, code int32) {
	w.t.Helper()
	id, found := p.Container("c")
	if !found {
		w.t.Fatalf("%s has no container", p.Key())
	}
	w.runtime.mu.Lock()
	w.runtime.end(w.runtime.containers[id], code)
	w.runtime.mu.Unlock()
	synctest.Wait()
}

// phases returns the pods' phases in the order of their numbers: R, S, F, and P for a waiting one.
func phases(m *Manager, job string) string {
	var mine []*Pod
	for _, p := range m.All() {
		if strings.HasPrefix(p.Name(), job+"-") {
			mine = append(mine, p)
		}
	}
	slices.SortFunc(mine, func(a, b *Pod) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	out := ""
	for _, p := range mine {
		out += string(p.Status().Phase)[:1]
	}
	return out
}

func wantPhases(t *testing.T, m *Manager, want string) {
	t.Helper()
	if got := phases(m, "sum"); got != want {
		t.Errorf("pods are %s, want %s", got, want)
	}
}

// TestJobInTurns: a Job's pods run within its parallelism, in the order of their numbers, independent of other Jobs.
func TestJobInTurns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		w.run(m, Record{Pod: jobPod("other", 0, 1)})
		w.runJob(m, 12, 2)
		wantPhases(t, m, "RRPPPPPPPPPP")
		w.exit(w.find(m, "sum-1"), 0)
		wantPhases(t, m, "RSRPPPPPPPPP")
		for i := 2; i < 12; i++ {
			w.exit(w.find(m, fmt.Sprint("sum-", i)), 0)
			want := "RS" + strings.Repeat("S", i-1) + "RPPPPPPPPPP"
			wantPhases(t, m, want[:12])
		}
		w.exit(w.find(m, "sum-0"), 0)
		wantPhases(t, m, "SSSSSSSSSSSS")
		if got := phases(m, "other"); got != "R" || w.held != 1 {
			t.Errorf("the other job is %s, held %d", got, w.held)
		}
	})
}

// TestJobEndsAtOnce: pods that end immediately all get their turns.
func TestJobEndsAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		w.runJob(m, 100, 3, func(r *Record) { r.Pod.Spec.Containers[0].Command = []string{"exit", "0"} })
		wantPhases(t, m, strings.Repeat("S", 100))
	})
}

// TestJobFails: when a pod of a Job fails or is stopped, waiting pods fail without a start, and running pods continue.
func TestJobFails(t *testing.T) {
	for _, tc := range []struct {
		name   string
		remove bool // each after its end
		end    func(*testing.T, *world, *Manager)
		want   string
	}{
		{name: "failed", end: func(t *testing.T, w *world, m *Manager) { w.exit(w.find(m, "sum-1"), 3) }, want: "RFFF"},
		{name: "failed and removed", remove: true, end: func(t *testing.T, w *world, m *Manager) { w.exit(w.find(m, "sum-1"), 3) },
			want: "R"},
		{name: "stopped", end: func(t *testing.T, w *world, m *Manager) {
			if err := w.find(m, "sum-0").Stop(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}, want: "FRFF"},
		{name: "stopped successfully", end: func(t *testing.T, w *world, m *Manager) {
			w.runtime.term = 0
			if err := w.find(m, "sum-0").Stop(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}, want: "SRFF"},
		{name: "removed by force", end: func(t *testing.T, w *world, m *Manager) {
			if err := w.find(m, "sum-0").Remove(t.Context(), true); err != nil {
				t.Error(err)
			}
		}, want: "RFF"},
		{name: "a waiting one is stopped", end: func(t *testing.T, w *world, m *Manager) {
			if err := w.find(m, "sum-2").Stop(t.Context(), nil); err != nil {
				t.Error(err)
			}
			w.exit(w.find(m, "sum-0"), 0)
		}, want: "SRFR"},
		{name: "abandoned", end: func(t *testing.T, w *world, m *Manager) {
			if err := m.StopAndRemoveAll(m.All()); err != nil {
				t.Error(err)
			}
		}, want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				m := w.open()
				w.runJob(m, 4, 2, func(r *Record) { r.Remove = tc.remove })
				tc.end(t, w, m)
				synctest.Wait()
				wantPhases(t, m, tc.want)
				for _, p := range m.All() {
					s := p.Status()
					if number := p.Name()[4:]; number < "2" || s.Phase != corev1.PodFailed {
						continue
					}
					if s.Reason != pod.ReasonJobFailed && s.Message == "" || p.Sandbox() != "" {
						t.Errorf("%s: %+v in sandbox %q", p.Name(), s, p.Sandbox())
					}
				}
				if begun := w.runtime.next; strings.Contains(tc.name, "waiting") != (begun > 4) {
					t.Errorf("%d sandboxes and containers were made", begun)
				}
			})
		})
	}
}

// TestJobTakenOver: the next manager knows which pods have begun and which Job has failed, in any order of adoption.
func TestJobTakenOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		next := func() {
			m.Close()
			m = w.open()
			synctest.Wait()
			if n := w.runtime.running(); n > 2 {
				t.Errorf("%d pods run", n)
			}
		}
		w.runJob(m, 5, 2)
		w.exit(w.find(m, "sum-0"), 0)
		next()
		wantPhases(t, m, "SRRPP")
		// A restarted pod takes a turn from the waiting ones.
		if err := w.find(m, "sum-0").Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		next()
		wantPhases(t, m, "PRRPP")
		m.Close()
		w.exit(w.find(m, "sum-1"), 0)
		next()
		wantPhases(t, m, "RSRPP")
		m.Close()
		w.exit(w.find(m, "sum-2"), 1)
		next()
		wantPhases(t, m, "RSFFF")
		if err := w.find(m, "sum-4").Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		next()
		wantPhases(t, m, "RSFFR")
	})
}

// TestJobWithoutASandbox: a pod that had begun when its manager was killed continues even without a sandbox.
func TestJobWithoutASandbox(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		w.runJob(m, 3, 1, func(r *Record) { r.Begun = r.Pod.Name == "sum-1" })
		wantPhases(t, m, "PRP")
	})
}

// TestJobPodThatIsToEnd: a pod that must end does not begin.
func TestJobPodThatIsToEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		w.runJob(m, 2, 1)
		w.find(m, "sum-1").ending.Store(true)
		w.exit(w.find(m, "sum-0"), 0)
		wantPhases(t, m, "SP")
	})
}

// TestJobOfAClientThatIsGone: pods of a foreground run do not begin under the next manager, which ends them.
func TestJobOfAClientThatIsGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		w.runJob(m, 3, 1, func(r *Record) { r.Foreground = true })
		m.Close()
		w.exit(w.find(m, "sum-0"), 0) // no waiting pod gets its turn
		made := w.runtime.next
		m = w.open()
		if err := m.WaitDetached(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wantPhases(t, m, "SFF"); w.runtime.next != made {
			t.Error("a pod began")
		}
	})
}

// TestJobDeadline: a Job's deadline counts from its start, for waiting pods too, and also under the next manager.
func TestJobDeadline(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		w.runJob(m, 3, 1, func(r *Record) { r.Pod.Annotations[podspec.AnnotationJobDeadline] = "60" })
		time.Sleep(30 * time.Second)
		w.exit(w.find(m, "sum-0"), 0)
		m.Close()
		m = w.open()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		wantPhases(t, m, "SRP")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantPhases(t, m, "SFF")
		for _, name := range []string{"sum-1", "sum-2"} {
			if s := w.find(m, name).Status(); s.Reason != pod.ReasonDeadline {
				t.Errorf("%s: %+v", name, s)
			}
		}
	})
}

// TestJobOnAFullDisk: a turn counts even if it cannot be saved.
func TestJobOnAFullDisk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		w.runJob(m, 2, 1)
		waits := w.find(m, "sum-1")
		if err := os.RemoveAll(waits.Dir()); err != nil {
			t.Fatal(err)
		}
		w.exit(w.find(m, "sum-0"), 0)
		if rec := waits.record(); !rec.Begun {
			t.Errorf("%+v", waits.Status())
		}
	})
}

// TestJobsOfACluster: where a controller runs the Jobs, pods do not wait for others, whatever their annotations.
func TestJobsOfACluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cluster = true
		m := w.open()
		w.runJob(m, 3, 1)
		wantPhases(t, m, "RRR")
		w.exit(w.find(m, "sum-1"), 1)
		wantPhases(t, m, "RFR")
	})
}
