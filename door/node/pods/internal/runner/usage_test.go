package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/volume"
)

// mounted are claim volumes in directories of the host.
type mounted struct {
	volume.Claims
	places map[string]volume.Place
}

func (m mounted) Mount(context.Context, *corev1.Pod) (map[string]volume.Place, error) {
	return m.places, nil
}
func (m mounted) Places() map[string]volume.Place { return m.places }
func (mounted) Changed() <-chan struct{}          { return nil }
func (mounted) Unmount(context.Context) error     { return nil }
func (mounted) Release()                          {}

// TestUsagesOfClaims: the usage of claim volumes is reported by claim while a running pod has them. Devices without a
// driver's report and unmounted driver volumes are left out.
func TestUsagesOfClaims(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		has := mounted{places: map[string]volume.Place{
			"data": {Path: w.dir}, "own": {Path: w.dir}, "device": {Path: "/dev", Block: true}, "disk": {Path: "/dev", Disk: true},
			"told": {Path: "/dev", Block: true}, "absent": {Path: w.dir},
			"gone": {Path: filepath.Join(w.dir, "none")},
		}}
		w.claims = func(*corev1.Pod, string) volume.Claims { return has }
		w.use = func(of types.UID, volume string) (usage.Volume, bool) {
			return usage.Volume{Capacity: 9, Files: usage.Files{Bytes: 5}}, of == uid && volume == "told"
		}
		w.absent = func(of types.UID, volume string) bool { return of == uid && volume == "absent" }
		w.Close()
		w.open()
		p := spec("p", uid)
		claim := func(name string) corev1.VolumeSource {
			return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: claim("c")}, {Name: "device", VolumeSource: claim("d")}, {Name: "disk", VolumeSource: claim("e")},
			{Name: "told", VolumeSource: claim("t")}, {Name: "absent", VolumeSource: claim("a")},
			{Name: "gone", VolumeSource: claim("g")},
			{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		}
		if err := w.Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		all := w.Claims()
		if told := all[types.NamespacedName{Namespace: "default", Name: "t"}]; told.Capacity != 9 || told.Name != "told" || told.Claim != "t" {
			t.Errorf("the driver's report: %+v", told)
		}
		for _, name := range []string{"c", "p-own"} {
			v := all[types.NamespacedName{Namespace: "default", Name: name}]
			if len(all) != 3 || v.Claim != name || v.Capacity == 0 || v.Bytes == 0 || v.Ephemeral {
				t.Errorf("%s: %+v of %v", name, v, all)
			}
		}
		if err := w.Stop(t.Context(), uid, 0); err != nil {
			t.Fatal(err)
		}
		if all := w.Claims(); len(all) != 0 {
			t.Errorf("Claims after the pod has ended: got %v, want none", all)
		}
		w.stopAndRemove(uid)
	})
}

// TestUsages: of the volumes that a guest reports, only the pod's emptyDirs count. The host measures the logs. Pods of
// other owners are left out.
func TestUsages(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := spec("p", uid)
		p.Spec.Volumes = []corev1.Volume{
			{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			{Name: "silent", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		}
		told := func(name string, bytes uint64) usage.Volume {
			return usage.Volume{Name: name, Files: usage.Files{Bytes: bytes, Inodes: 1}, Capacity: 9000, Available: 8000}
		}
		of := func(uid types.UID, id string, volumes ...usage.Volume) usage.Pod {
			return usage.Pod{Volumes: volumes, Stats: &runtimeapi.PodSandboxStats{
				Attributes: &runtimeapi.PodSandboxAttributes{Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: string(uid)}},
				Linux: &runtimeapi.LinuxPodSandboxStats{Containers: []*runtimeapi.ContainerStats{{
					Attributes:    &runtimeapi.ContainerAttributes{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}},
					WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: 5}},
				}}},
			}}
		}
		var all []usage.Pod
		var failed error
		w.usages = func(context.Context) ([]usage.Pod, error) { return all, failed }
		w.Close()
		w.open()
		if err := w.Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		logs := filepath.Join(w.dir, "pods", string(uid), "logs", "c")
		if err := errors.Join(os.MkdirAll(logs, 0o700), os.WriteFile(filepath.Join(logs, "0.log"), make([]byte, 8192), 0o600)); err != nil {
			t.Fatal(err)
		}
		id := w.Get(uid).Sandbox()
		all = []usage.Pod{
			of("another", "x"), of(uid, id, told("disk", 100), told("disk", 7), told("memory", 200), told("config", 1<<40), told("made up", 1<<40)),
			of(uid, "before", told("disk", 1<<40)),
		}
		got, err := w.Usages(t.Context())
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		mine := got[uid]
		disk, memory := told("disk", 100), told("memory", 200)
		disk.Ephemeral = true
		if diff := cmp.Diff([]usage.Volume{disk, memory}, mine.Volumes); diff != "" {
			t.Error(diff)
		}
		if l := mine.Logs["c"]; l.Bytes < 8192 || l.Inodes != 1 {
			t.Errorf("logs: %+v", l)
		}
		if sum, c := mine.Ephemeral(), mine.Container("c"); sum.Bytes != mine.Logs["c"].Bytes+105 || c.Bytes != mine.Logs["c"].Bytes+5 {
			t.Errorf("in all %+v, the container %+v", sum, c)
		}
		failed = errPassing
		if _, err := w.Usages(t.Context()); !errors.Is(err, errPassing) {
			t.Errorf("Usages of a runtime that does not answer: got %v, want %v", err, errPassing)
		}
		w.stopAndRemove(uid)
	})
}
