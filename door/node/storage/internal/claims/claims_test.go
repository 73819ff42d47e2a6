package claims

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

var errPassing = errors.New("temporary error")

// driver is a Mounter with configurable errors.
type driver struct {
	mu       sync.Mutex
	mounts   []Request
	unmounts []string
	mount    error
	unmount  []error // errors of the next calls
	place    Place
}

func (d *driver) Mount(_ context.Context, r Request) (Place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mounts = append(d.mounts, r)
	return d.place, d.mount
}

func (d *driver) Unmount(_ context.Context, uid types.UID, volume string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unmounts = append(d.unmounts, string(uid)+"/"+volume)
	if len(d.unmount) > 0 {
		err := d.unmount[0]
		d.unmount = d.unmount[1:]
		return err
	}
	return nil
}

// world is one pod with a claim that is bound to a local PersistentVolume.
type world struct {
	pod    *corev1.Pod
	claim  *corev1.PersistentVolumeClaim
	pv     *corev1.PersistentVolume
	node   *corev1.Node
	rules  place.Rules
	driver *driver
	client *fake.Clientset
	data   string // directory of the volume
	dir    string // the pod's directory
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root := t.TempDir()
	w := &world{data: filepath.Join(root, "data"), dir: filepath.Join(root, "pod"), driver: &driver{place: Place{Path: "/csi"}}}
	for _, dir := range []string{w.data, w.dir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.pod = podOf("u1")
	w.claim = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	w.pv = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "volume"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{UID: "claim"}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		NodeAffinity: affinity("node"),
	}}
	w.pv.Spec.Local = &corev1.LocalVolumeSource{Path: w.data}
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelHostname: "node"}}}
	return w
}

func podOf(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: uid}, Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
		}}},
		Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
	}}
}

func affinity(host string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host},
		}},
	}}}}
}

// open returns a keeper with the present objects of the world.
func (w *world) open(t *testing.T) *Keeper {
	t.Helper()
	w.client = fake.NewClientset()
	for _, object := range []runtime.Object{w.claim, w.pv} {
		if err := w.client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	k := New(Options{Client: w.client, Node: func() *corev1.Node { return w.node }, Places: w.rules, CSI: w.driver})
	t.Cleanup(k.Close)
	return k
}

func (w *world) device() { w.pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }

// mapped makes the pod use its volume as a device.
func (w *world) mapped() {
	w.pod.Spec.Containers[0].VolumeMounts = nil
	w.pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
}

// TestReasonsToWait checks the error for each reason to wait, and that no volume is recorded as mounted.
func TestReasonsToWait(t *testing.T) {
	t.Parallel()
	for why, tt := range map[string]struct {
		change func(*world)
		says   string
	}{
		"no claim":      {func(w *world) { w.claim.Name = "other" }, `failed to fetch PVC from API server: persistentvolumeclaims "c" not found`},
		"going claim":   {func(w *world) { w.claim.DeletionTimestamp = new(metav1.Now()) }, "PVC is being deleted"},
		"pending":       {func(w *world) { w.claim.Status.Phase = corev1.ClaimPending }, "PVC is not bound"},
		"no volume":     {func(w *world) { w.claim.Spec.VolumeName = "" }, "PVC is not bound"},
		"lost volume":   {func(w *world) { w.pv.Name = "other" }, `failed to get PV from API server: persistentvolumes "pv" not found`},
		"unbound PV":    {func(w *world) { w.pv.Spec.ClaimRef = nil }, "PV pv is bound to another claim"},
		"PV of another": {func(w *world) { w.pv.Spec.ClaimRef.UID = "earlier" }, "PV pv is bound to another claim"},
		"other node":    {func(w *world) { w.pv.Spec.NodeAffinity = affinity("other") }, `MountVolume.NodeAffinity check failed for volume "pv"`},
		"no node":       {func(w *world) { w.node = nil }, "not registered yet"},
		"device":        {func(w *world) { w.device() }, "volume v has volumeMode Block, but is specified in volumeMounts"},
		"no device":     {func(w *world) { w.mapped() }, "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
		"kind": {func(w *world) {
			w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}
		}, "PersistentVolume pv is of kind nfs, which this node does not mount"},
		"no kind":    {func(w *world) { w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{} }, "of kind unknown"},
		"not there":  {func(w *world) { w.pv.Spec.Local.Path = "/nowhere/at/all" }, "no such file or directory"},
		"a file":     {func(w *world) { w.pv.Spec.Local.Path = "/etc/passwd" }, "only directories and block devices are supported"},
		"own":        {func(w *world) { w.rules.Own = []string{filepath.Dir(w.data)} }, "Bulkhead's own"},
		"a kernel's": {func(w *world) { w.pv.Spec.Local.Path = "/proc/sys" }, "a kernel of its own"},
		"no disk":    {func(w *world) { w.device(); w.mapped() }, "must be a block device"},
		"host disk": {func(w *world) {
			w.device()
			w.mapped()
			w.hostPath("")
		}, "a hostPath cannot be of volumeMode Block"},
		"host type":  {func(w *world) { w.hostPath(corev1.HostPathFile) }, "hostPath type check failed"},
		"host place": {func(w *world) { w.hostPath(""); w.rules.Own = []string{filepath.Dir(w.data)} }, "Bulkhead's own"},
		"driver": {func(w *world) {
			w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
			w.driver.mount = errPassing
		}, `MountVolume.SetUp failed for volume "v" : temporary error`},
		"not its own":   {func(w *world) { w.ephemeral() }, "PVC ns/p-v was not created for pod ns/p (pod is not owner)"},
		"earlier pod's": {func(w *world) { w.ephemeral(); w.own("u0") }, "(pod is not owner)"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tt.change(w)
			v := w.open(t).Of(w.pod, w.dir)
			_, err := v.Mount(t.Context(), w.pod)
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") ||
				!strings.HasPrefix(err.Error(), "Unable to attach or mount volumes: unmounted volumes=[v]: ") {
				t.Errorf("%v, want %q", err, tt.says)
			}
			if places := v.Places(); len(places) > 0 {
				t.Errorf("places %v", places)
			}
			if err := v.Unmount(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func (w *world) hostPath(kind corev1.HostPathType) {
	w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: w.data, Type: &kind}}
}

// ephemeral replaces the pod's claim by a generic ephemeral volume.
func (w *world) ephemeral() {
	w.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	w.claim.Name = "p-v"
}

func (w *world) own(uid types.UID) {
	w.claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: uid, Controller: new(true)}}
}

// TestPlaces checks the places of volumes and whether they are read-only.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*world)
		want   Place // without a path if it is the volume's
	}{
		"local":    {func(*world) {}, Place{}},
		"hostPath": {func(w *world) { w.hostPath(corev1.HostPathDirectory) }, Place{}},
		"made": {func(w *world) {
			w.data = filepath.Join(w.data, "below")
			w.hostPath("")
		}, Place{}},
		"no type":   {func(w *world) { w.hostPath("") }, Place{}},
		"ephemeral": {func(w *world) { w.ephemeral(); w.own("u1") }, Place{}},
		"read-only": {func(w *world) { w.pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true }, Place{ReadOnly: true}},
		"for readers": {func(w *world) {
			w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}, Place{ReadOnly: true}},
		"for readers too": {func(w *world) {
			w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteOnce}
		}, Place{}},
		"anywhere": {func(w *world) { w.pv.Spec.NodeAffinity = nil }, Place{}},
		"driver": {func(w *world) {
			w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
		}, Place{Path: "/csi"}},
		"inline": {func(w *world) {
			w.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", ReadOnly: new(true)}}
		}, Place{Path: "/csi", ReadOnly: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tt.change(w)
			if tt.want.Path == "" {
				tt.want.Path = w.data
			}
			places, err := w.open(t).Of(w.pod, w.dir).Mount(t.Context(), w.pod)
			if err != nil || len(places) != 1 || places["v"] != tt.want {
				t.Errorf("%v, %v, want %v", places, err, tt.want)
			}
		})
	}
}

// TestRestart checks that the next process knows mounts and started mounts without an API server, and undoes
// them.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}
	w.driver.mount = errPassing
	if _, err := w.open(t).Of(w.pod, w.dir).Mount(t.Context(), w.pod); !errors.Is(err, errPassing) {
		t.Fatal(err)
	}
	begun := w.open(t)
	if got := begun.Of(w.pod, w.dir).Places(); len(got) > 0 {
		t.Errorf("begun mounts: %v", got)
	}
	if got := begun.all(); len(got) != 1 || got[0].known()["v"].PV.Spec.CSI.VolumeHandle != "h" {
		t.Errorf("begun mounts: %+v", got)
	}
	w.driver.mount = nil
	if _, err := begun.Of(w.pod, w.dir).Mount(t.Context(), w.pod); err != nil {
		t.Fatal(err)
	}
	next := w.open(t)
	w.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errPassing })
	v := next.Of(w.pod, w.dir)
	if got := v.Places(); got["v"].Path != "/csi" {
		t.Errorf("mounted: %v", got)
	}
	if _, err := v.Mount(t.Context(), w.pod); err != nil {
		t.Errorf("for another VM: %v", err)
	}
	w.driver.unmount = []error{errPassing}
	if err := v.Unmount(t.Context()); !errors.Is(err, errPassing) || len(v.Places()) != 1 {
		t.Errorf("%v, %v", err, v.Places())
	}
	last := w.open(t).Of(w.pod, w.dir)
	for range 2 {
		if err := last.Unmount(t.Context()); err != nil || len(last.Places()) != 0 {
			t.Errorf("%v, %v", err, last.Places())
		}
	}
	if got := strings.Join(w.driver.unmounts, " "); got != "u1/v u1/v" {
		t.Error(got)
	}
}

// TestDamagedRecord checks that the volume of a damaged record is unmounted by its name.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.open(t).Of(w.pod, w.dir).Mount(t.Context(), w.pod); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "claims/v.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := w.open(t).Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}, w.dir)
	if err := v.Unmount(t.Context()); err != nil || len(w.driver.unmounts) != 1 {
		t.Errorf("%v, %v", err, w.driver.unmounts)
	}
}

// TestOnePod checks that a second pod gets a ReadWriteOncePod claim only after the first one has released it.
func TestOnePod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	first := w.open(t).Of(w.pod, w.dir)
	if _, err := first.Mount(t.Context(), w.pod); err != nil {
		t.Fatal(err)
	}
	k := w.open(t) // a keeper of another process
	first = k.Of(w.pod, w.dir)
	pod := podOf("u2")
	second := k.Of(pod, t.TempDir())
	changed := second.Changed()
	if _, err := second.Mount(t.Context(), pod); !errors.Is(err, errUsed) {
		t.Fatal(err)
	}
	if _, err := first.Mount(t.Context(), w.pod); err != nil {
		t.Errorf("the pod's own claim: %v", err)
	}
	if err := first.Unmount(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-changed
	if _, err := second.Mount(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

// TestOnePodUnknown checks that no pod gets a ReadWriteOncePod volume while the volumes of another pod are unknown.
func TestOnePodUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	first := w.open(t).Of(w.pod, w.dir)
	if _, err := first.Mount(t.Context(), w.pod); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, recordsDir, "v"+suffix), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := w.open(t)
	_ = k.Of(w.pod, w.dir)
	pod := podOf("u2")
	if _, err := k.Of(pod, t.TempDir()).Mount(t.Context(), pod); !errors.Is(err, errUsed) {
		t.Errorf("%v", err)
	}
}

// TestUnreadRecords checks that a pod with unreadable records blocks the volume until they can be read.
func TestUnreadRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	records := filepath.Join(w.dir, recordsDir)
	if err := os.WriteFile(records, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := w.open(t)
	first, pod := k.Of(w.pod, w.dir), podOf("u2")
	second := k.Of(pod, t.TempDir())
	for range 2 {
		if _, err := second.Mount(t.Context(), pod); !errors.Is(err, errUsed) {
			t.Errorf("%v", err)
		}
	}
	if err := errors.Join(os.Remove(records), first.Unmount(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Mount(t.Context(), pod); err != nil {
		t.Errorf("after the records were read: %v", err)
	}
}

// TestUnusedVolume checks that a pod does not wait for a claim that no container uses.
func TestUnusedVolume(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*corev1.PodSpec){
		"unused":   func(*corev1.PodSpec) {},
		"a mount":  func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v"}} },
		"a device": func(s *corev1.PodSpec) { s.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v"}} },
		"initially": func(s *corev1.PodSpec) {
			s.InitContainers = s.Containers[:1:1]
			s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v"}}
		},
		"a debugger": func(s *corev1.PodSpec) {
			s.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
			s.EphemeralContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.claim.Status.Phase = corev1.ClaimPending
			w.pod.Spec.Containers[0].VolumeMounts = nil
			use(&w.pod.Spec)
			places, err := w.open(t).Of(w.pod, w.dir).Mount(t.Context(), w.pod)
			if waits := errors.Is(err, errNotBound); waits != (name != "unused") || len(places) > 0 {
				t.Errorf("%v, %v", places, err)
			}
		})
	}
}

// TestDriversVolumes checks that a driver mounts and unmounts its own volumes, of all pods, and no others.
func TestDriversVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	k := w.open(t)
	inline := podOf("u2")
	inline.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "inline"}}
	driven := podOf("u3")
	driven.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "driven"
	claim, pv := w.claim.DeepCopy(), w.pv.DeepCopy()
	claim.Name, claim.Spec.VolumeName, pv.Name, pv.UID = "driven", "driven", "driven", "driven"
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
	for _, object := range []runtime.Object{claim, pv} {
		if err := w.client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	var all []*Volumes
	for _, pod := range []*corev1.Pod{inline, driven, w.pod} {
		v := k.Of(pod, t.TempDir())
		if _, err := v.Mount(t.Context(), pod); err != nil {
			t.Fatalf("%s: %v", pod.UID, err)
		}
		all = append(all, v)
	}
	told := func() (names []string) {
		for _, r := range w.driver.mounts {
			switch {
			case r.Inline != nil:
				names = append(names, string(r.Pod.UID)+" "+r.Inline.Driver)
			case r.PV != nil:
				names = append(names, string(r.Pod.UID)+" "+r.PV.Spec.CSI.Driver)
			}
		}
		slices.Sort(names)
		return names
	}
	if got := told(); !slices.Equal(got, []string{"u2 inline", "u3 d"}) {
		t.Errorf("driver requests %q", got)
	}
	for _, v := range all {
		if err := v.Unmount(t.Context()); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(w.driver.unmounts)
	if got := w.driver.unmounts; !slices.Equal(got, []string{"u2/v", "u3/v"}) || len(k.all()) > 0 {
		t.Errorf("unmounted %q, left %v", got, k.all())
	}
}

// TestAnotherVolume checks that a started mount is undone first if its claim has been recreated.
func TestAnotherVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
	w.driver.mount = errPassing
	if _, err := w.open(t).Of(w.pod, w.dir).Mount(t.Context(), w.pod); !errors.Is(err, errPassing) {
		t.Fatal(err)
	}
	w.pv.UID, w.driver.unmount = "other", []error{errPassing}
	v := w.open(t).Of(w.pod, w.dir)
	if _, err := v.Mount(t.Context(), w.pod); !errors.Is(err, errPassing) || len(w.driver.mounts) != 1 {
		t.Fatal(err)
	}
	w.driver.mount = nil
	if _, err := v.Mount(t.Context(), w.pod); err != nil || len(w.driver.unmounts) != 2 || w.driver.mounts[1].PV.UID != "other" {
		t.Errorf("%v, %v, %v", err, w.driver.unmounts, w.driver.mounts)
	}
}

// TestRelease checks that Release retries until all volumes are unmounted, and at once after a change.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
	synctest.Test(t, func(t *testing.T) {
		k := w.open(t)
		v := k.Of(w.pod, w.dir)
		if _, err := v.Mount(t.Context(), w.pod); err != nil {
			t.Fatal(err)
		}
		w.driver.unmount = []error{errPassing, errPassing, errPassing, errPassing}
		v.Release()
		v.Release()
		synctest.Wait()
		tries := func() int {
			w.driver.mu.Lock()
			defer w.driver.mu.Unlock()
			return len(w.driver.unmounts)
		}
		if n := tries(); n != 1 {
			t.Errorf("%d tries at once", n)
		}
		time.Sleep(1500 * time.Millisecond)
		if n := tries(); n != 2 {
			t.Errorf("%d tries after a pause", n)
		}
		k.Changed()
		synctest.Wait()
		if n := tries(); n != 3 {
			t.Errorf("%d tries after a change", n)
		}
		time.Sleep(time.Minute)
		if n := tries(); n != 5 || len(k.all()) > 0 {
			t.Errorf("%d tries in the end, %v", n, k.all())
		}
		k.Close()
	})
}

// TestUnwritten checks that a volume without a written record is not mounted, and that unreadable records fail an
// unmount.
func TestUnwritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
	records := filepath.Join(w.dir, "claims")
	if err := os.WriteFile(records, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	v := w.open(t).Of(w.pod, w.dir)
	if _, err := v.Mount(t.Context(), w.pod); err == nil || len(w.driver.mounts) > 0 {
		t.Errorf("mounted: %v", w.driver.mounts)
	}
	if err := v.Unmount(t.Context()); err == nil {
		t.Error("Unmount succeeds without readable records")
	}
	if err := os.Remove(records); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Mount(t.Context(), w.pod); err != nil {
		t.Error(err)
	}
}

// TestEachDependencyFails checks that the pod waits after each failure and gets its volume with the next try.
func TestEachDependencyFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*testing.T, *world) (mend func()){
		"get claim":  func(_ *testing.T, w *world) func() { return w.failOnce("get", "persistentvolumeclaims") },
		"get volume": func(_ *testing.T, w *world) func() { return w.failOnce("get", "persistentvolumes") },
		"record": func(t *testing.T, w *world) func() {
			path := filepath.Join(w.dir, "claims", "v.json")
			if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := os.RemoveAll(path); err != nil {
					t.Error(err)
				}
			}
		},
		"driver": func(_ *testing.T, w *world) func() {
			w.driver.mount = errPassing
			return func() { w.driver.mount = nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
			v := w.open(t).Of(w.pod, w.dir)
			mend := fail(t, w)
			if _, err := v.Mount(t.Context(), w.pod); err == nil || len(v.Places()) > 0 {
				t.Fatalf("%v, %v", err, v.Places())
			}
			mend()
			if places, err := v.Mount(t.Context(), w.pod); err != nil || places["v"].Path != "/csi" {
				t.Errorf("%v, %v", places, err)
			}
			if err := v.Unmount(t.Context()); err != nil || len(w.driver.unmounts) != 1 {
				t.Errorf("%v, %v", err, w.driver.unmounts)
			}
		})
	}
}

// failOnce makes one kind of request fail until mend is called.
func (w *world) failOnce(verb, resource string) (mend func()) {
	failing := true
	w.client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return failing, nil, errPassing })
	return func() { failing = false }
}

// TestAlone checks that claims need an API server, and that volumes of drivers need a driver.
func TestAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := New(Options{Node: func() *corev1.Node { return nil }})
	defer k.Close()
	if _, err := k.Of(w.pod, w.dir).Mount(t.Context(), w.pod); !errors.Is(err, errAlone) {
		t.Error(err)
	}
	w.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}
	v := k.Of(w.pod, w.dir)
	if _, err := v.Mount(t.Context(), w.pod); err == nil || !strings.Contains(err.Error(), "no CSI drivers on this node") {
		t.Error(err)
	}
	if err := v.Unmount(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDriversGone checks that a node without drivers keeps the records of an earlier process's driver mounts.
func TestDriversGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
	if _, err := w.open(t).Of(w.pod, w.dir).Mount(t.Context(), w.pod); err != nil {
		t.Fatal(err)
	}
	k := New(Options{Node: func() *corev1.Node { return nil }})
	defer k.Close()
	v := k.Of(w.pod, w.dir)
	if _, err := v.Mount(t.Context(), w.pod); !errors.Is(err, errNoDrivers) {
		t.Errorf("for another VM: %v", err)
	}
	if err := v.Unmount(t.Context()); !errors.Is(err, errNoDrivers) || len(v.Places()) != 1 {
		t.Errorf("%v, %v", err, v.Places())
	}
	if err := w.open(t).Of(w.pod, w.dir).Unmount(t.Context()); err != nil || len(w.driver.unmounts) != 1 {
		t.Errorf("%v, %v", err, w.driver.unmounts)
	}
}

// TestBusy checks that mounts are serialised, and that a waiting call ends with its context.
func TestBusy(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		k := w.open(t)
		v := k.Of(w.pod, w.dir)
		done, err := v.lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.Mount(ctx, w.pod); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := v.Unmount(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		done()
		if _, err := v.Mount(t.Context(), w.pod); err != nil {
			t.Error(err)
		}
		k.Close()
	})
}

// TestFSGroup checks that the files of a local volume get the pod's group, once for each pod and by its policy. Files
// of a hostPath or a read-only volume do not.
func TestFSGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: changes the group of files")
	}
	mismatch := corev1.FSGroupChangeOnRootMismatch
	for name, tt := range map[string]struct {
		change func(*world)
		given  bool
		again  bool // also new files in a directory that has the group
	}{
		"local": {func(*world) {}, true, true},
		"deep": {func(w *world) { // does not stop the pod
			if err := os.MkdirAll(filepath.Join(w.data, strings.Repeat("d/", guesttree.MaxLevels+1)), 0o755); err != nil {
				t.Error(err)
			}
		}, true, true},
		"mismatch":  {func(w *world) { w.pod.Spec.SecurityContext.FSGroupChangePolicy = &mismatch }, true, false},
		"hostPath":  {func(w *world) { w.hostPath("") }, false, false},
		"read-only": {func(w *world) { w.pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(4711))}
			tt.change(w)
			reset := func() {
				t.Helper()
				file := filepath.Join(w.data, "f")
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(file, 0, 0); err != nil { // even if the directory is setgid
					t.Fatal(err)
				}
			}
			given := func() bool {
				t.Helper()
				info, err := os.Stat(filepath.Join(w.data, "f"))
				if err != nil {
					t.Fatal(err)
				}
				return info.Sys().(*syscall.Stat_t).Gid == 4711
			}
			v := w.open(t).Of(w.pod, w.dir)
			mount := func() bool {
				t.Helper()
				reset()
				if _, err := v.Mount(t.Context(), w.pod); err != nil {
					t.Fatal(err)
				}
				return given()
			}
			if got := mount(); got != tt.given {
				t.Errorf("files have the group: %t", got)
			}
			if mount() {
				t.Error("files changed their group before another VM")
			}
			if err := v.Unmount(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := mount(); got != tt.again {
				t.Errorf("files have the group of the next pod: %t", got)
			}
		})
	}
}
