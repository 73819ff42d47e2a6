package csi

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube/testcsi"
)

// world are a node's drivers, under one process after the other.
type world struct {
	*Plugin
	t       *testing.T
	root    string
	client  *fake.Clientset
	changed chan struct{}
	stop    func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	attached, policy := false, storagev1.FileFSGroupPolicy
	w := &world{t: t, root: root, changed: make(chan struct{}, 10), client: fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n"}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: testcsi.Name}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: &attached, FSGroupPolicy: &policy, PodInfoOnMount: new(true),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
		}},
	)}
	w.open()
	t.Cleanup(func() { w.stop() })
	return w
}

// open starts the next process.
func (w *world) open() {
	w.t.Helper()
	var err error
	w.Plugin, err = New(Options{
		Root: w.root, Dir: filepath.Join(w.root, "records"), Client: w.client, Name: "node",
		Node: func() *corev1.Node { return nil }, InUse: func(corev1.UniqueVolumeName) bool { return false },
		Publish: func() {}, Changed: func() { w.changed <- struct{}{} },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	p := w.Plugin
	go func() { done <- p.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		if err := p.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// registered waits until a driver is registered.
func (w *world) registered(ctx context.Context) {
	w.t.Helper()
	select {
	case <-w.changed:
	case <-ctx.Done():
		w.t.Fatal(context.Cause(ctx))
	}
}

// names returns the drivers of the CSINode.
func (w *world) names() (names []string) {
	w.t.Helper()
	got, err := w.client.StorageV1().CSINodes().Get(w.t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range got.Spec.Drivers {
		names = append(names, d.Name)
	}
	return names
}

// TestNames checks that the first of two drivers with one name stays, unless the second has a higher version. The end
// of the newer driver frees the name; the end of the older one does not affect the newer.
func TestNames(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 10*time.Second)
	w := newWorld(t)
	serve := func(file string, versions ...string) (f *testcsi.Fake, stop func()) {
		f = &testcsi.Fake{Info: &registration.PluginInfo{
			Type: registration.CSIPlugin, Name: "one", Endpoint: filepath.Join(w.root, "plugins", file, "csi.sock"), SupportedVersions: versions,
		}}
		return f, f.Serve(t, w.root, file)
	}
	first, stopFirst := serve("a", "1.0.0")
	w.registered(ctx)
	for _, tc := range []struct {
		versions []string
		want     string
	}{
		{[]string{"1.0.0"}, "already registered"}, {[]string{"0.3.0"}, "none of the versions"}, {nil, "none of the versions"},
		{[]string{"2.0.0"}, "none of the versions"}, {[]string{"nonsense"}, "none of the versions"},
	} {
		f, stop := serve("b", tc.versions...)
		word, err := f.NextStatus(ctx)
		if err != nil || word.GetPluginRegistered() || !strings.Contains(word.GetError(), tc.want) {
			t.Errorf("%v: %v, %v", tc.versions, word, err)
		}
		stop()
	}
	second, stopSecond := serve("c", "1.0.0", "1.4.0")
	w.registered(ctx)
	before := len(second.Calls())
	stopFirst()
	if word, err := first.NextStatus(ctx); err != nil || !word.GetPluginRegistered() {
		t.Errorf("the first: %v, %v", word, err)
	}
	if d := w.driver("one"); d == nil || len(w.names()) != 1 {
		t.Error("the second driver was removed with the first")
	} else if _, err := d.Node.NodeGetInfo(ctx, nil); err != nil || len(second.Calls()) != before+1 {
		t.Errorf("the driver with the name: %v, %v", err, second.Calls())
	}
	stopSecond()
	for w.driver("one") != nil || len(w.names()) > 0 {
		if ctx.Err() != nil {
			t.Fatal("the driver stays registered")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestRolledBack checks that the older of two drivers gets the name back after the newer one's end, and that no driver
// has the name after both have ended.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 10*time.Second)
	w := newWorld(t)
	serve := func(file, id, version string) (stop func()) {
		f := &testcsi.Fake{Node: &csispec.NodeGetInfoResponse{NodeId: id}, Info: &registration.PluginInfo{
			Type: registration.CSIPlugin, Name: "one", SupportedVersions: []string{version},
			Endpoint: filepath.Join(w.root, "plugins", file, "csi.sock"),
		}}
		stop = f.Serve(t, w.root, file)
		w.registered(ctx)
		return stop
	}
	stopOlder := serve("a", "older", "1.0.0")
	for range 2 {
		stopNewer := serve("b", "newer", "1.4.0")
		if d := w.driver("one"); d == nil || d.Facts.NodeID != "newer" {
			t.Fatalf("after the newer driver: %+v", d)
		}
		stopNewer()
		w.registered(ctx)
		if d := w.driver("one"); d == nil || d.Facts.NodeID != "older" || len(w.names()) != 1 {
			t.Fatalf("after the newer driver's end: %+v, %v", d, w.names())
		}
	}
	stopOlder()
	for w.driver("one") != nil || len(w.names()) > 0 {
		if ctx.Err() != nil {
			t.Fatal("the driver stays registered")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestDisks checks a driver of disks: it registers, also with the next process, and its volumes are mounted once for
// two pods, with the group applied and the data kept. No mount is left at the end.
func TestDisks(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts disks")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("there is no mkfs.ext4")
	}
	ctx := testdeadline.Context(t, 20*time.Second)
	w := newWorld(t)
	driver := testcsi.Start(t, w.root, "node")
	w.registered(ctx)
	group := int64(4321)
	request := func(uid types.UID, block bool) claims.Request {
		q := claims.Request{Volume: "v", Block: block, FSGroup: &group, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}}
		q.PV = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
		q.PV.Name = map[bool]string{false: "files", true: "disk"}[block]
		q.PV.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: testcsi.Name, VolumeHandle: q.PV.Name, FSType: "ext4"}
		return q
	}
	one, err := w.Mount(ctx, request("u1", false))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(one.Path, "x"), []byte("words"), 0o600); err != nil {
		t.Error(err)
	}
	w.stop()
	w.open()
	w.registered(ctx)
	calls := len(w.client.Actions())
	if again, err := w.Mount(ctx, request("u1", false)); err != nil || again != one || len(w.client.Actions()) != calls {
		t.Errorf("mounted again: %+v, %v, %d requests", again, err, len(w.client.Actions())-calls)
	}
	two, err := w.Mount(ctx, request("u2", false))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(two.Path, "x"))
	if err != nil || info.Mode().Perm() != 0o660 || info.Size() != 5 {
		t.Errorf("the file of the first pod: %+v, %v", info, err)
	}
	if again, err := w.Mount(ctx, request("u1", false)); err != nil || again != one {
		t.Errorf("again: %+v, %v", again, err)
	}
	grow := &csispec.NodeExpandVolumeRequest{
		VolumeId: "files", VolumePath: one.Path, CapacityRange: &csispec.CapacityRange{RequiredBytes: 32 << 20},
	}
	if _, err := w.driver(testcsi.Name).Node.NodeExpandVolume(ctx, grow); err != nil {
		t.Error(err)
	}
	disk, err := w.Mount(ctx, request("u3", true))
	if info, looked := os.Stat(disk.Path); err != nil || looked != nil || info.Mode()&os.ModeDevice == 0 {
		t.Errorf("device: %+v, %v, %v", info, err, looked)
	}
	q := claims.Request{Volume: "own", Inline: &corev1.CSIVolumeSource{Driver: testcsi.Name}, Pod: request("u1", false).Pod}
	if own, err := w.Mount(ctx, q); err != nil || own.Path == one.Path {
		t.Errorf("inline: %+v, %v", own, err)
	}
	for _, k := range [][2]string{{"u1", "v"}, {"u1", "own"}, {"u2", "v"}, {"u3", "v"}} {
		if err := w.Unmount(ctx, types.UID(k[0]), k[1]); err != nil {
			t.Error(err)
		}
	}
	if err := driver.Unmounted(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(w.root, "pods")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
