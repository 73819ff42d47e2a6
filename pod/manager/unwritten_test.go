package manager

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func limitedTo(text string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
	return corev1.ResourceRequirements{Limits: list, Requests: list.DeepCopy()}
}

// TestUnwrittenResize: a resize that cannot be saved is not started, because the next manager would revert it.
func TestUnwrittenResize(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		given := spec("web")
		given.Spec.Containers[0].Resources = limitedTo("64Mi")
		p := w.run(w.open(), Record{Pod: given})
		has := func() string {
			time.Sleep(time.Second)
			synctest.Wait()
			list := p.Status().ContainerStatuses[0].Resources.Limits
			return list.Memory().String()
		}
		at := filepath.Join(p.Dir(), recordFile)
		record, err := os.ReadFile(at)
		if err := errors.Join(err, os.Remove(at), os.Mkdir(at, 0o700)); err != nil {
			t.Fatal(err)
		}
		next := given.DeepCopy()
		next.Generation, next.Spec.Containers[0].Resources = 5, limitedTo("96Mi")
		if err := p.Resize(t.Context(), "c", map[string]string{"memory": "96Mi"}, nil); err == nil || has() != "64Mi" {
			t.Errorf("a command's: %v, %s", err, has())
		}
		if err := p.Update(next, nil); err == nil || has() != "64Mi" {
			t.Errorf("an API server's: %v, %s", err, has())
		}
		if got := p.Spec().Spec.Containers[0].Resources.Limits.Memory().String(); got != "64Mi" {
			t.Errorf("the record has %s", got)
		}
		if err := errors.Join(os.Remove(at), os.WriteFile(at, record, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := p.Update(next, nil); err != nil || has() != "96Mi" {
			t.Errorf("once it can be saved: %v, %s", err, has())
		}
	})
}

// TestHostCannotRead: a record that the host cannot read temporarily is not damaged.
func TestHostCannotRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web")})
		m.Close()
		at := filepath.Join(p.Dir(), recordFile)
		// Reading it returns EIO.
		if err := errors.Join(os.Rename(at, at+".kept"), os.Symlink("/proc/self/mem", at)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), m.o); !errors.Is(err, errHost) {
			t.Errorf("error %v", err)
		}
		if err := os.Rename(at+".kept", at); err != nil {
			t.Fatal(err)
		}
		if got := w.find(w.open(), "web").Status(); got.Phase != corev1.PodRunning {
			t.Errorf("pod is %s", got.Phase)
		}
	})
}
