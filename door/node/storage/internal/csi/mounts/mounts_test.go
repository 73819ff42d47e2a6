package mounts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestTwoPods checks that a volume of two pods is staged once, published for each, and unstaged after the last. The
// driver gets the same paths and parameters as from a kubelet.
func TestTwoPods(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{PodInfoOnMount: new(true)})
	one, err := w.Mount(ctx, persistent("u1", false))
	if err != nil || one.Path != filepath.Join(w.root, "pods/u1/volumes/kubernetes.io~csi/pv-1/mount") || one.Block {
		t.Fatalf("%+v, %v", one, err)
	}
	if _, err := w.Mount(ctx, persistent("u2", false)); err != nil {
		t.Fatal(err)
	}
	if got := w.driver.Calls(); !reflect.DeepEqual(got, []string{"stage", "publish", "publish"}) {
		t.Errorf("calls: %v", got)
	}
	requests := w.driver.Requests()
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("handle-1")))
	staging := filepath.Join(w.root, "plugins/kubernetes.io/csi", theDriver, hash, "globalmount")
	stage, publish := requests[0].(*csi.NodeStageVolumeRequest), requests[1].(*csi.NodePublishVolumeRequest)
	form := publish.GetVolumeCapability()
	if stage.GetStagingTargetPath() != staging || publish.GetStagingTargetPath() != staging || publish.GetTargetPath() != one.Path ||
		stage.GetSecrets()["key"] != theSecret || publish.GetSecrets()["key"] != theSecret || form.GetMount().GetFsType() != "ext4" ||
		form.GetMount().GetMountFlags()[0] != "noatime" ||
		form.GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER || publish.GetReadonly() {
		t.Errorf("stage %v\npublish %v", stage, publish)
	}
	want := map[string]string{
		"a": "b", "csi.storage.k8s.io/pod.name": "pod-u1", "csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": "u1",
		"csi.storage.k8s.io/serviceAccount.name": "sa", "csi.storage.k8s.io/ephemeral": "false",
	}
	if got := publish.GetVolumeContext(); !reflect.DeepEqual(got, want) || len(stage.GetVolumeContext()) != 1 {
		t.Errorf("context %v, staged with %v", got, stage.GetVolumeContext())
	}
	for _, uid := range []types.UID{"u1", "u2", "u2"} {
		if err := w.Unmount(ctx, uid, "v"); err != nil {
			t.Error(err)
		}
	}
	if got := w.driver.Calls()[3:]; !reflect.DeepEqual(got, []string{"unpublish", "unpublish", "unstage"}) {
		t.Errorf("calls: %v", got)
	}
	w.left()
}

// TestForms checks a device, a read-only volume, an inline volume, an fsGroup that the driver applies, and access modes
// of drivers that distinguish writers.
func TestForms(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{
		PodInfoOnMount:       new(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	})
	w.facts.Group, w.facts.ManyWriters = true, true
	group := int64(7)
	q := persistent("u1", false)
	q.ReadOnly, q.FSGroup = true, &group
	device := persistent("u2", true)
	device.PV.Name, device.PV.Spec.CSI.VolumeHandle = "pv-2", "handle-2"
	for _, one := range []claims.Request{q, device, inline("u3")} {
		place, err := w.Mount(ctx, one)
		if err != nil || place.Block != one.Block || place.ReadOnly != one.ReadOnly {
			t.Errorf("%+v, %v", place, err)
		}
	}
	var got []*csi.NodePublishVolumeRequest
	for _, r := range w.driver.Requests() {
		if one, is := r.(*csi.NodePublishVolumeRequest); is {
			got = append(got, one)
		}
	}
	if len(got) != 3 {
		t.Fatal(w.driver.Calls())
	}
	form := got[0].GetVolumeCapability()
	if !got[0].GetReadonly() || form.GetMount().GetVolumeMountGroup() != "7" ||
		form.GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("read only: %v", got[0])
	}
	at := filepath.Join(w.root, "plugins/kubernetes.io/csi/volumeDevices")
	if got[1].GetVolumeCapability().GetBlock() == nil || got[1].GetTargetPath() != at+"/publish/pv-2/u2" ||
		got[1].GetStagingTargetPath() != at+"/staging/pv-2" {
		t.Errorf("device: %v", got[1])
	}
	handle := fmt.Sprintf("csi-%x", sha256.Sum256([]byte("u3own")))
	if got[2].GetVolumeId() != handle || got[2].GetStagingTargetPath() != "" || got[2].GetSecrets()["key"] != theSecret ||
		got[2].GetVolumeContext()["csi.storage.k8s.io/ephemeral"] != "true" || got[2].GetVolumeContext()["c"] != "d" {
		t.Errorf("inline: %v", got[2])
	}
	for uid, name := range map[types.UID]string{"u1": "v", "u2": "v", "u3": "own"} {
		if err := w.Unmount(ctx, uid, name); err != nil {
			t.Error(err)
		}
	}
	w.left()
}

// TestRefused checks that invalid volumes are refused before a driver is called.
func TestRefused(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	hostile := persistent("u1", false)
	hostile.PV = hostile.PV.DeepCopy()
	hostile.PV.Name = "../../etc"
	other := persistent("u1", false)
	other.PV = other.PV.DeepCopy()
	other.PV.Spec.CSI.Driver = "other"
	long := persistent("u1", false)
	long.PV = long.PV.DeepCopy()
	long.PV.Spec.CSI.VolumeHandle = strings.Repeat("h", maxHandle+1)
	for name, tc := range map[string]struct {
		q    claims.Request
		want string
	}{
		"name is a path":           {hostile, "must be a valid name"},
		"driver not registered":    {other, "driver name other not found in the list of registered CSI drivers"},
		"a long handle":            {long, "handle of 4097 bytes"},
		"lifecycle not supported":  {inline("u1"), `volume mode "Ephemeral" not supported`},
		"no driver":                {claims.Request{Pod: podOf("u1"), Volume: "v"}, "must have a CSI driver"},
		"UID of the pod is a path": {persistent("..", false), "must be a valid name"},
	} {
		if _, err := w.Mount(ctx, tc.q); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls := w.driver.Calls(); len(calls) > 0 {
		t.Errorf("calls: %v", calls)
	}
	w.left()
}

// TestAttach checks that the node reports a volume in use before it waits for the attachment, and until the volume is
// unmounted. The driver gets the attacher's metadata. This is also the rule without a CSIDriver.
func TestAttach(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{AttachRequired: new(true)})
	if err := w.client.StorageV1().CSIDrivers().Delete(ctx, theDriver, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	name := UniqueName(theDriver, "handle-1")
	broken := errors.New("not yet")
	w.attached = func(context.Context) (map[string]string, error) {
		if got := w.InUse(); !reflect.DeepEqual(got, []corev1.UniqueVolumeName{name}) {
			t.Errorf("in use: %v", got)
		}
		return nil, broken
	}
	if _, err := w.Mount(ctx, persistent("u1", false)); !errors.Is(err, broken) {
		t.Errorf("not attached: %v", err)
	}
	w.open()
	if got := w.InUse(); !reflect.DeepEqual(got, []corev1.UniqueVolumeName{name}) {
		t.Errorf("in use after a restart: %v", got)
	}
	w.attached = func(context.Context) (map[string]string, error) { return map[string]string{"disk": "/dev/x"}, nil }
	if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
		t.Error(err)
	}
	stage := w.driver.Requests()[0].(*csi.NodeStageVolumeRequest)
	publish := w.driver.Requests()[1].(*csi.NodePublishVolumeRequest)
	if stage.GetPublishContext()["disk"] != "/dev/x" || publish.GetPublishContext()["disk"] != "/dev/x" {
		t.Errorf("stage %v, publish %v", stage, publish)
	}
	if err := w.Unmount(ctx, "u1", "v"); err != nil {
		t.Error(err)
	}
	w.left()
}

// TestTokens checks that a driver gets the requested tokens of the pod, again with each republication, and that tokens
// are reused while they are fresh.
func TestTokens(t *testing.T) {
	t.Parallel()
	for _, secretly := range []bool{false, true} {
		ctx := testdeadline.Context(t, 5*time.Second)
		w := newWorld(t, storagev1.CSIDriverSpec{
			RequiresRepublish: new(true), TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}, {Audience: ""}},
			ServiceAccountTokenInSecrets: &secretly,
		})
		asked := 0
		w.client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
			asked++
			q := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest)
			q = q.DeepCopy()
			q.Status.Token = fmt.Sprint("token for ", q.Spec.Audiences, " of ", q.Spec.BoundObjectRef.UID)
			q.Status.ExpirationTimestamp = metav1.NewTime(metav1.Now().Add(3600e9))
			return true, q, nil
		})
		if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
			t.Fatal(err)
		}
		w.open() // the next process continues
		asked = 0
		w.tend(ctx)
		w.tend(ctx)
		requests := w.driver.Requests()
		if len(requests) != 6 || asked != 2 { // the fake driver mounts nothing, so each round stages as well
			t.Fatalf("%v, %d tokens", w.driver.Calls(), asked)
		}
		last := requests[5].(*csi.NodePublishVolumeRequest)
		text := last.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"]
		if secretly {
			text = last.GetSecrets()["csi.storage.k8s.io/serviceAccount.tokens"]
		}
		if !strings.Contains(text, `"vault":{"token":"token for [vault] of u1","expirationTimestamp":"`) || !strings.Contains(text, `"":{`) {
			t.Errorf("tokens: %s", text)
		}
		if err := w.Unmount(ctx, "u1", "v"); err != nil {
			t.Error(err)
		}
		w.tend(ctx)
		w.left()
	}
}

// TestReboot checks that after a reboot of the host a volume is staged and published again, whichever pod comes first.
// A new pod shares only a volume that was staged in this boot.
func TestReboot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pods []types.UID
		want []string
	}{
		"the pod that had it": {[]types.UID{"u1", "u2"}, []string{"stage", "publish", "publish"}},
		"a new pod":           {[]types.UID{"u2", "u1"}, []string{"stage", "publish", "stage", "publish"}},
	} {
		for _, block := range []bool{false, true} {
			ctx := testdeadline.Context(t, 5*time.Second)
			w := newWorld(t, storagev1.CSIDriverSpec{})
			if _, err := w.Mount(ctx, persistent("u1", block)); err != nil {
				t.Fatal(err)
			}
			w.reboot()
			before := len(w.driver.Calls())
			for _, uid := range tc.pods {
				if _, err := w.Mount(ctx, persistent(uid, block)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if got := w.driver.Calls()[before:]; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%s: calls: %v", name, got)
			}
			for _, uid := range tc.pods {
				if err := w.Unmount(ctx, uid, "v"); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			w.left()
		}
	}
}

// TestUnmountedOutside checks that a volume that was unmounted from outside is staged before it is published again,
// also if another pod's record says that it is staged. A failed staging meanwhile must not skip it.
func TestUnmountedOutside(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	for _, uid := range []types.UID{"u1", "u2"} {
		if _, err := w.Mount(ctx, persistent(uid, false)); err != nil {
			t.Fatal(err)
		}
	}
	w.driver.Reboot()
	w.driver.Set(func(_ context.Context, call string) error {
		if call == "stage" {
			return errors.New("no")
		}
		return nil
	}, nil)
	for _, uid := range []types.UID{"u1", "u1", "u3"} {
		if _, err := w.Mount(ctx, persistent(uid, false)); err == nil {
			t.Errorf("%s: mounted", uid)
		}
	}
	w.driver.Set(nil, nil)
	for _, uid := range []types.UID{"u1", "u2", "u3"} {
		if _, err := w.Mount(ctx, persistent(uid, false)); err != nil {
			t.Error(err)
		}
	}
	for _, uid := range []types.UID{"u1", "u2", "u3"} {
		if err := w.Unmount(ctx, uid, "v"); err != nil {
			t.Error(err)
		}
	}
	w.left()
}

// TestMoved checks that a node with a new root keeps mounted volumes below the old one, also for new pods of these
// volumes, and unmounts them there.
func TestMoved(t *testing.T) {
	t.Parallel()
	for _, block := range []bool{false, true} {
		ctx := testdeadline.Context(t, 5*time.Second)
		w := newWorld(t, storagev1.CSIDriverSpec{})
		one, err := w.Mount(ctx, persistent("u1", block))
		if err != nil {
			t.Fatal(err)
		}
		w.moved = filepath.Join(w.root, "moved")
		w.open()
		if again, err := w.Mount(ctx, persistent("u1", block)); err != nil || again != one {
			t.Errorf("%+v, %v", again, err)
		}
		if other, err := w.Mount(ctx, persistent("u2", block)); err != nil || strings.HasPrefix(other.Path, w.moved) {
			t.Errorf("%+v, %v", other, err)
		}
		for _, uid := range []types.UID{"u1", "u2"} {
			if err := w.Unmount(ctx, uid, "v"); err != nil {
				t.Error(err)
			}
		}
		w.left()
		if now, err := w.Mount(ctx, persistent("u3", block)); err != nil || !strings.HasPrefix(now.Path, w.moved) {
			t.Errorf("after the old mount was undone: %+v, %v", now, err)
		}
		if err := w.Unmount(ctx, "u3", "v"); err != nil {
			t.Error(err)
		}
		w.left()
	}
}

// TestDamaged checks that an unreadable record does not count as absent. The pod can still mount the volume, which is
// then undone completely.
func TestDamaged(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.file(key{"u1", "v"}), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.driver.Reboot()
	w.open()
	if err := w.Unmount(ctx, "u1", "v"); err == nil || !strings.Contains(err.Error(), "cannot tell") {
		t.Errorf("unmount: %v", err)
	}
	if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
		t.Error(err)
	}
	if err := w.Unmount(ctx, "u1", "v"); err != nil {
		t.Error(err)
	}
	w.left()
}

// TestDamagedRemoved checks that an unreadable record is dropped once its file has been removed, as the error advises.
func TestDamagedRemoved(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	file := w.file(key{"u1", "v"})
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.open()
	err := w.Unmount(ctx, "u1", "v")
	if err == nil || !strings.Contains(err.Error(), "remove the file") || !strings.Contains(err.Error(), file) {
		t.Errorf("unmount: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Unmount(ctx, "u1", "v"); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
	w.left()
}

// TestSweep checks that volumes of removed pods are unmounted, with retries, and that other volumes stay.
func TestSweep(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	for _, uid := range []types.UID{"u1", "u2"} {
		if _, err := w.Mount(ctx, persistent(uid, false)); err != nil {
			t.Fatal(err)
		}
	}
	w.open()
	w.gone = true
	w.Sweep(func(uid types.UID) bool { return uid == "u2" })
	w.mu.Lock()
	w.gone = false
	w.mu.Unlock()
	for w.get(key{"u1", "v"}) != nil && ctx.Err() == nil {
		if err := w.Unmount(ctx, "u1", "v"); err != nil {
			t.Log(err)
		}
	}
	if _, published := w.driver.Left(); published != 1 {
		t.Errorf("%d are published", published)
	}
	if err := w.Unmount(ctx, "u2", "v"); err != nil {
		t.Error(err)
	}
	w.left()
}

// TestAtOnce checks that calls for one volume do not overlap, and that it is staged exactly while a pod has it.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			uid := types.UID(fmt.Sprint("u", i))
			for range 5 {
				if _, err := w.Mount(ctx, persistent(uid, false)); err != nil {
					t.Error(err)
				}
				if err := w.Unmount(ctx, uid, "v"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	w.left()
}

// TestUnmountGoesOn checks that an unmount continues after its caller's deadline, and that the next caller gets its
// result.
func TestUnmountGoesOn(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}), make(chan struct{})
	w.driver.Set(func(ctx context.Context, call string) error {
		if call == "unpublish" {
			close(held)
			<-release
		}
		return nil
	}, nil)
	short, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Unmount(short, "u1", "v") }()
	<-held
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	go func() { done <- w.Unmount(ctx, "u1", "v") }()
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the second: %v", err)
	}
	w.left()
}

// TestMountGoesOn checks that a call to the driver continues after the mount was cancelled, that no other call follows,
// and that Unmount waits for it.
func TestMountGoesOn(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	held, release := make(chan struct{}), make(chan struct{})
	w.driver.Set(func(ctx context.Context, call string) error {
		if call == "stage" {
			close(held)
			<-release
			if ctx.Err() != nil {
				t.Error("the call was given up")
			}
		}
		return nil
	}, nil)
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
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("unmount: %v", err)
	}
	if got := w.driver.Calls(); !reflect.DeepEqual(got, []string{"stage", "unstage"}) {
		t.Errorf("calls: %v", got)
	}
	w.left()
}
