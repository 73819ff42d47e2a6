package mounts

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestAppliesGroup checks that the node applies the fsGroup in the same cases as a kubelet.
func TestAppliesGroup(t *testing.T) {
	t.Parallel()
	group := int64(7)
	file, none, once := storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	for _, tc := range []struct {
		name   string
		r      record
		policy *storagev1.FSGroupPolicy
		can    bool
		want   bool
	}{
		{name: "default policy", r: record{Group: &group, FSType: "ext4", Once: true}, want: true},
		{name: "no group", r: record{FSType: "ext4", Once: true}, policy: &file},
		{name: "no file system", r: record{Group: &group, Once: true}, policy: &once},
		{name: "for many nodes", r: record{Group: &group, FSType: "ext4"}, policy: &once},
		{name: "file", r: record{Group: &group}, policy: &file, want: true},
		{name: "file, read only", r: record{Group: &group, ReadOnly: true}, policy: &file},
		{name: "device", r: record{Group: &group, Block: true}, policy: &file},
		{name: "none", r: record{Group: &group, FSType: "ext4", Once: true}, policy: &none},
		{name: "applied by the driver", r: record{Group: &group}, policy: &file, can: true},
	} {
		facts := driver.Facts{Can: driver.Can{Group: tc.can}}
		a := &attempt{r: &tc.r, rules: storagev1.CSIDriverSpec{FSGroupPolicy: tc.policy}, driver: &Driver{Facts: facts}}
		if got := a.appliesGroup(); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestGroupApplied checks that files get the group once, at the mount for a pod, even if the top directory has it,
// unless the pod's policy allows to skip that. Links are not followed.
func TestGroupApplied(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: changes the group of files")
	}
	for _, tc := range []struct {
		policy corev1.PodFSGroupChangePolicy // empty means that the pod sets no policy
		want   uint32
	}{{"", 4321}, {corev1.FSGroupChangeAlways, 4321}, {corev1.FSGroupChangeOnRootMismatch, 0}} {
		ctx := testdeadline.Context(t, 5*time.Second)
		policy := storagev1.FileFSGroupPolicy
		w := newWorld(t, storagev1.CSIDriverSpec{FSGroupPolicy: &policy})
		outside, group := filepath.Join(w.root, "outside"), int64(4321)
		if err := os.WriteFile(outside, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		q := persistent("u1", false)
		q.FSGroup, q.Pod.Spec.SecurityContext = &group, &corev1.PodSecurityContext{}
		if tc.policy != "" {
			q.Pod.Spec.SecurityContext.FSGroupChangePolicy = &tc.policy
		}
		w.driver.Set(nil, func(call string) error {
			if call != "publish" {
				return nil
			}
			at := filepath.Join(w.root, "pods/u1/volumes/kubernetes.io~csi/pv-1/mount")
			for _, err := range []error{
				os.WriteFile(filepath.Join(at, "f"), nil, 0o600), os.Symlink(outside, filepath.Join(at, "l")),
				os.Chown(at, -1, int(group)), os.Chmod(at, os.ModeSetgid|0o775),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		place, err := w.Mount(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		group1, group2 := groupOf(t, filepath.Join(place.Path, "f")), groupOf(t, outside)
		if group1 != tc.want || group2 != 0 {
			t.Errorf("%q: group of the file %d, of the file outside %d", tc.policy, group1, group2)
		}
		if err := w.Unmount(ctx, "u1", "v"); err != nil {
			t.Error(err)
		}
		w.left()
	}
}

func groupOf(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Gid
}
