package mounts

import (
	"context"
	"errors"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestUnmountOfGivenUp checks that Unmount undoes a Mount that was cancelled before it wrote its record.
func TestUnmountOfGivenUp(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{AttachRequired: new(true)})
	w.attached = func(ctx context.Context) (map[string]string, error) { return nil, ctx.Err() }
	held, release := make(chan struct{}), make(chan struct{})
	w.client.PrependReactor("get", "csidrivers", func(clienttesting.Action) (bool, runtime.Object, error) {
		close(held)
		<-release
		return false, nil, nil
	})
	short, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := w.Mount(short, persistent("u1", false))
		done <- err
	}()
	<-held
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("mount: %v", err)
	}
	go func() { done <- w.Unmount(ctx, "u1", "v") }()
	select {
	case err := <-done:
		t.Errorf("unmounted meanwhile: %v", err)
		done <- nil
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("unmount: %v", err)
	}
	w.all.Wait()
	if got := w.driver.Calls(); len(got) > 0 {
		t.Errorf("calls: %v", got)
	}
	w.left()
}

// TestMountWithoutCaller checks that a Mount does no work after its caller has given up.
func TestMountWithoutCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(testdeadline.Context(t, 5*time.Second))
	cancel()
	w := newWorld(t, storagev1.CSIDriverSpec{})
	if _, err := w.Mount(ctx, persistent("u1", false)); !errors.Is(err, context.Canceled) {
		t.Errorf("mount: %v", err)
	}
	w.all.Wait()
	if asked := w.client.Actions(); len(asked) > 0 {
		t.Errorf("asked: %v", asked)
	}
	w.left()
}
