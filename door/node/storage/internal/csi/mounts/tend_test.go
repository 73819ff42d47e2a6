package mounts

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// hanging is a driver that reports each call to publish and does not answer until it is released.
type hanging struct {
	csi.NodeClient
	called  chan struct{}
	release chan struct{}
}

func (h *hanging) NodePublishVolume(
	context.Context, *csi.NodePublishVolumeRequest, ...grpc.CallOption,
) (*csi.NodePublishVolumeResponse, error) {
	h.called <- struct{}{}
	<-h.release
	return nil, fmt.Errorf("publish: %w", &driver.Error{Driver: "hanging", Code: codes.DeadlineExceeded})
}

// TestTendHanging checks that a hanging driver does not delay the volumes of others and has only one running call. Its
// round ends with the first call that times out.
func TestTendHanging(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	rules := storagev1.CSIDriverSpec{RequiresRepublish: new(true), AttachRequired: new(false)}
	w := newWorld(t, rules)
	w.facts.Stage = false
	if _, err := w.client.StorageV1().CSIDrivers().Create(
		ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "hanging"}, Spec: rules}, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	good := w.o.Driver
	h := &hanging{called: make(chan struct{}, 16), release: make(chan struct{})}
	w.o.Driver = func(name string) *Driver {
		if name == "hanging" {
			return &Driver{Node: h}
		}
		return good(name)
	}
	if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r := &record{
			UID: types.UID(fmt.Sprint("h", i)), Volume: "v", Spec: "pv", Driver: "hanging", Handle: fmt.Sprint(i), Root: w.root, Phase: published,
		}
		if err := w.save(r); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		w.startRounds(ctx)
		for published := 0; published < 2+round; { // one call by Mount
			published = len(w.driver.Calls())
			if ctx.Err() != nil {
				close(h.release)
				t.Fatalf("round %d: %d calls", round, published)
			}
			time.Sleep(time.Millisecond)
		}
		for busy := true; busy && ctx.Err() == nil; time.Sleep(time.Millisecond) { // the good driver's round ends after its call
			_, busy = w.tending.Load(theDriver)
		}
	}
	close(h.release)
	w.all.Wait()
	if n := len(h.called); n != 1 {
		t.Errorf("%d calls of the hanging driver", n)
	}
}
