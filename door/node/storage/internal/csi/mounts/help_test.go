package mounts

import (
	"bytes"
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube/testcsi"
)

const (
	theDriver = "fake.testcsi"
	theSecret = "of-all-words-this-one-is-secret"
)

// world is a driver, an API server and a directory, with one Mounter after the other.
type world struct {
	*Mounter
	t      *testing.T
	root   string
	moved  string // root below which volumes are mounted instead, if not empty
	client *fake.Clientset
	driver *testcsi.Fake
	facts  driver.Facts
	node   *driver.Client
	log    bytes.Buffer // guarded by mu
	mu     sync.Mutex
	gone   bool // the driver is not registered
	// attached answers for the cluster's controllers.
	attached func(ctx context.Context) (map[string]string, error)
	timeout  time.Duration
}

// Write implements io.Writer for the log.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// logged returns the log so far.
func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// newWorld returns a world with a driver that has all capabilities.
func newWorld(t *testing.T, rules storagev1.CSIDriverSpec) *world {
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
	if rules.AttachRequired == nil {
		rules.AttachRequired = new(false)
	}
	w := &world{t: t, root: root, timeout: 10 * time.Second, driver: &testcsi.Fake{Can: []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	}}}
	w.client = fake.NewClientset(
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: theDriver}, Spec: rules},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}, Data: map[string][]byte{"key": []byte(theSecret)}},
	)
	t.Cleanup(w.driver.Serve(t, root, theDriver))
	w.facts = driver.Facts{Can: driver.Can{Stage: true}}
	w.open()
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// open opens the next Mounter, as the next process does.
func (w *world) open() {
	w.t.Helper()
	if w.Mounter != nil {
		if err := w.Close(); err != nil {
			w.t.Error(err)
		}
	}
	node, err := driver.New(driver.Options{
		Name: theDriver, Endpoint: filepath.Join(w.root, "plugins", theDriver, "csi.sock"), Timeout: w.timeout,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = node.Close() })
	w.node = node
	w.Mounter, err = Open(Options{
		Root: cmp.Or(w.moved, w.root), Dir: filepath.Join(w.root, "records"), Client: w.client, Node: "node",
		Driver: func(name string) *Driver {
			w.mu.Lock()
			defer w.mu.Unlock()
			if name != theDriver || w.gone {
				return nil
			}
			return &Driver{Node: node, Facts: w.facts}
		},
		Attached: func(ctx context.Context, _, _ string) (map[string]string, error) { return w.attached(ctx) },
		Changed:  func() {}, Logger: slog.New(slog.NewTextHandler(w, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// reboot opens the Mounter of the next boot. The driver then has no mounts.
func (w *world) reboot() {
	w.t.Helper()
	w.boot = "yesterday"
	for _, r := range w.list() {
		next := *r
		if err := w.save(&next); err != nil {
			w.t.Fatal(err)
		}
	}
	w.driver.Reboot()
	w.open()
}

// tend runs one round of each driver to its end.
func (w *world) tend(ctx context.Context) {
	w.startRounds(ctx)
	w.all.Wait()
}

// left fails the test if anything is left of a volume.
func (w *world) left() {
	w.t.Helper()
	if staged, published := w.driver.Left(); staged+published != 0 {
		w.t.Errorf("the driver has %d volumes staged and %d published", staged, published)
	}
	err := filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		rest, _ := filepath.Rel(w.root, path)
		for _, is := range []string{"pods/", "records/", "plugins/kubernetes.io/csi/" + theDriver + "/", "volumeDevices/publish/",
			"volumeDevices/staging/"} {
			if strings.Contains(rest, is) {
				w.t.Errorf("%s is left", rest)
			}
		}
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
	if names := w.InUse(); len(names) > 0 {
		w.t.Errorf("the node still reports %v in use", names)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(w.log.String(), theSecret) {
		w.t.Error("a secret was logged")
	}
}

// persistent returns a request for a PersistentVolume.
func persistent(uid types.UID, block bool) claims.Request {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, MountOptions: []string{"noatime"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: theDriver, VolumeHandle: "handle-1", FSType: "ext4", VolumeAttributes: map[string]string{"a": "b"},
			NodeStageSecretRef:   &corev1.SecretReference{Namespace: "ns", Name: "s"},
			NodePublishSecretRef: &corev1.SecretReference{Namespace: "ns", Name: "s"},
		}},
	}}
	return claims.Request{Pod: podOf(uid), Volume: "v", PV: pv, Block: block}
}

// inline returns a request for an inline volume.
func inline(uid types.UID) claims.Request {
	return claims.Request{Pod: podOf(uid), Volume: "own", Inline: &corev1.CSIVolumeSource{
		Driver: theDriver, VolumeAttributes: map[string]string{"c": "d"}, NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s"},
	}}
}

func podOf(uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + string(uid), Namespace: "ns", UID: uid},
		Spec:       corev1.PodSpec{ServiceAccountName: "sa"},
	}
}
