package manager

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

// TestByUID: with ByUID several pods may have the same name, but not the same UID. Options.Changed reports each change
// of a pod's status and its end.
func TestByUID(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		told := make(chan string, 100)
		m, err := Open(t.Context(), Options{
			Dir: filepath.Join(w.dir, "pods"), VolumeDir: filepath.Join(w.dir, "volumes"), Runtime: w.runtime,
			Door:  func(p *Pod) Door { return fakeDoor{w, p} },
			ByUID: true, Changed: func(p *Pod) { told <- string(p.UID()) + " " + string(p.Status().Phase) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		first, second := spec("p"), spec("p", "exit", "0")
		second.UID = "another"
		one := w.run(m, Record{Pod: first})
		if _, err := m.Add(Record{Pod: first}, Objects{}); !errors.Is(err, errdefs.ErrAlreadyExists) {
			t.Errorf("one UID twice: %v", err)
		}
		w.run(m, Record{Pod: second})
		if one.HasEnded() {
			t.Error("the first was touched")
		}
		last := map[string]string{}
		synctest.Wait()
		for len(told) > 0 {
			text := <-told
			for _, uid := range []string{string(first.UID), string(second.UID)} {
				if text == uid+" "+string(corev1.PodRunning) || text == uid+" "+string(corev1.PodSucceeded) {
					last[uid] = text
				}
			}
		}
		if last[string(first.UID)] != string(first.UID)+" Running" || last["another"] != "another Succeeded" {
			t.Errorf("last change: %v", last)
		}
		if err := one.Remove(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	})
}
