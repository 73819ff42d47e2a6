package mounts

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestDamagedInUse checks that the node reports an attached volume with a damaged record in use, if the record names
// it, until the volume is unmounted or the record removed.
func TestDamagedInUse(t *testing.T) {
	t.Parallel()
	used := []corev1.UniqueVolumeName{UniqueName(theDriver, "handle-1")}
	for name, tc := range map[string]struct {
		attach bool
		damage func(record string) string
		want   []corev1.UniqueVolumeName
	}{
		"cut before attach": {true, func(s string) string { return s[:strings.Index(s, `"fsType"`)] }, used},
		"cut after attach":  {true, func(s string) string { return s[:len(s)-3] }, used},
		"another volume":    {true, func(s string) string { return strings.Replace(s, `"u1"`, `"u9"`, 1) }, used},
		"not attached":      {false, func(s string) string { return strings.Replace(s, `"u1"`, `"u9"`, 1) }, nil},
		"no driver":         {true, func(s string) string { return s[:strings.Index(s, `"driver"`)] }, nil},
		"empty":             {true, func(string) string { return "" }, nil},
		"no object":         {true, func(string) string { return "[1]" }, nil},
		"no name":           {true, func(s string) string { return strings.Replace(s, theDriver, "../x", 1)[:len(s)/2] }, nil},
	} {
		ctx := testdeadline.Context(t, 5*time.Second)
		w := newWorld(t, storagev1.CSIDriverSpec{AttachRequired: &tc.attach})
		w.attached = func(context.Context) (map[string]string, error) { return nil, nil }
		if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
			t.Fatal(err)
		}
		w.spoil("u1", tc.damage)
		w.open()
		if got := w.InUse(); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: in use: %v", name, got)
		}
		if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.Unmount(ctx, "u1", "v"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.left()
	}
}

// spoil changes the record of a pod.
func (w *world) spoil(uid types.UID, damage func(record string) string) {
	w.t.Helper()
	file := w.file(key{uid, "v"})
	data, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(damage(string(data))), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// TestDamagedStaged checks that a volume stays staged while a damaged record may belong to it, until that record is
// written again or removed.
func TestDamagedStaged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		damage func(record string) string
		free   bool // the record names another volume
	}{
		"cut after handle":  {damage: func(s string) string { return s[:len(s)-3] }},
		"another pod":       {damage: func(s string) string { return strings.Replace(s, `"u1"`, `"u9"`, 1) }},
		"cut before driver": {damage: func(s string) string { return s[:strings.Index(s, `"driver"`)] }},
		"empty":             {damage: func(string) string { return "" }},
		"another volume's": {free: true, damage: func(s string) string {
			return strings.Replace(strings.Replace(s, `"u1"`, `"u9"`, 1), "handle-1", "handle-2", 1)
		}},
	} {
		for _, removed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/removed %v", name, removed), func(t *testing.T) {
				t.Parallel()
				ctx := testdeadline.Context(t, 5*time.Second)
				w := newWorld(t, storagev1.CSIDriverSpec{})
				for _, uid := range []types.UID{"u1", "u2"} {
					if _, err := w.Mount(ctx, persistent(uid, false)); err != nil {
						t.Fatal(err)
					}
				}
				w.spoil("u1", tc.damage)
				w.open()
				if tc.free {
					w.driver.Reboot() // only u2 has the volume
				}
				err := w.Unmount(ctx, "u2", "v")
				if tc.free {
					if err != nil || !slices.Contains(w.driver.Calls(), "unstage") {
						t.Errorf("unmounted: %v; calls: %v", err, w.driver.Calls())
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), w.file(key{"u1", "v"})) || slices.Contains(w.driver.Calls(), "unstage") {
					t.Fatalf("unmounted: %v; calls: %v", err, w.driver.Calls())
				}
				if removed {
					if err := os.Remove(w.file(key{"u1", "v"})); err != nil {
						t.Fatal(err)
					}
					w.driver.Reboot()
				} else if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
					t.Error(err)
				}
				for _, uid := range []types.UID{"u2", "u1"} {
					if err := w.Unmount(ctx, uid, "v"); err != nil {
						t.Error(err)
					}
				}
				if !removed {
					w.left()
				}
			})
		}
	}
}
