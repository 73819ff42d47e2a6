package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/volume"
)

// mounts are the claims of all pods, by UID, across Runners.
type mounts struct {
	mu       sync.Mutex
	mounted  map[types.UID]bool
	stuck    bool // unmounting fails
	released map[types.UID]int
}

// podMounts are the mounts of one pod.
type podMounts struct {
	*mounts
	uid types.UID
}

func (o podMounts) Mount(context.Context, *corev1.Pod) (map[string]volume.Place, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mounted[o.uid] = true
	return o.Places(), nil
}

func (podMounts) Places() map[string]volume.Place { return map[string]volume.Place{} }
func (podMounts) Changed() <-chan struct{}        { return nil }

func (o podMounts) Unmount(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stuck {
		return errPassing
	}
	delete(o.mounted, o.uid)
	return nil
}

func (o podMounts) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.released[o.uid]++
	if !o.stuck {
		delete(o.mounted, o.uid)
	}
}

func (m *mounts) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mounted)
}

func (m *mounts) stick(stuck bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck = stuck
}

// TestClaims: if a Runner is killed between a mount and its undoing, the next one unmounts, however much of the pod
// exists. A pod is not removed before that.
func TestClaims(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := &mounts{mounted: map[types.UID]bool{}, released: map[types.UID]int{}}
		w.claims = func(p *corev1.Pod, _ string) volume.Claims { return podMounts{all, p.UID} }
		w.again()
		const once, broken = types.UID("00000000-0000-0000-0000-000000000002"), types.UID("00000000-0000-0000-0000-000000000003")
		for id, name := range map[types.UID]string{uid: "p", once: "once", broken: "broken"} {
			p := spec(name, id)
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
			}}}
			if err := w.Run(t.Context(), p); err != nil || !w.ready(id, time.Minute) {
				t.Fatal(err)
			}
		}
		w.again() // while they run
		if n := all.left(); n != 3 || len(all.released) > 0 {
			t.Fatalf("%d are mounted, released %v", n, all.released)
		}
		all.stick(true)
		if err := w.Stop(t.Context(), once, 0); err != nil { // like a pod that ends by itself
			t.Fatal(err)
		}
		if n := all.left(); n != 3 || all.released[once] != 1 {
			t.Fatalf("%d are mounted, released %v", n, all.released)
		}
		w.Close()
		if err := os.WriteFile(filepath.Join(w.dir, "pods", string(broken), "pod.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.open()
		if all.released[once] != 2 || all.released[uid]+all.released[broken] > 0 {
			t.Errorf("released %v although the pods may be running", all.released)
		}
		for _, id := range []types.UID{once, broken, uid} {
			if err := w.Stop(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			}
			if err := w.Remove(t.Context(), id); !errors.Is(err, errPassing) || !w.Has(id) {
				t.Errorf("%s: removed: %v", id, err)
			}
		}
		all.stick(false)
		for _, id := range []types.UID{once, broken, uid} {
			if err := w.Remove(t.Context(), id); err != nil || w.Has(id) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if n := all.left(); n > 0 {
			t.Errorf("%d are mounted", n)
		}
	})
}

// again closes the Runner and opens the next.
func (w *world) again() {
	w.t.Helper()
	w.Close()
	w.open()
	synctest.Wait()
}
