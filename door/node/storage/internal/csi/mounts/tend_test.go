package mounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

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

// TestTendUnread checks that a round whose CSIDriver cannot be read measures the volumes, and reads it again soon, so that
// the volumes are published again. Close ends the pauses.
func TestTendUnread(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 10*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{RequiresRepublish: new(true)})
	w.facts = driver.Facts{Can: driver.Can{Stats: true}}
	w.driver.SetUsage(&csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: 7})
	if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
		t.Fatal(err)
	}
	var failures atomic.Int32
	failures.Store(1)
	w.client.PrependReactor("get", "csidrivers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failures.Add(-1) >= 0, nil, errors.New("no API server")
	})
	before := len(w.driver.Calls())
	w.tend(ctx)
	calls := fmt.Sprint(w.driver.Calls()[before:])
	if use, _ := w.Use("u1", "v"); use.Capacity != 7 || strings.Count(calls, "ublish") != 1 || !strings.Contains(w.logged(), "no API server") {
		t.Errorf("use %+v, calls %s, log: %s", use, calls, w.logged())
	}
	failures.Store(1000)
	w.startRounds(ctx)
	w.open() // closes the Mounter
	if ctx.Err() != nil {
		t.Error("Close waited for the round")
	}
}
