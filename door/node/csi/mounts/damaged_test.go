package mounts

import (
	"context"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// TestDamagedInUse: the node tells that it uses an attached volume whose record is damaged, as far as its record names it, until
// it is undone or the record is removed.
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
		"another volume's":  {true, func(s string) string { return strings.Replace(s, `"u1"`, `"u9"`, 1) }, used},
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
		file := w.file(key{"u1", "v"})
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(tc.damage(string(data))), 0o600); err != nil {
			t.Fatal(err)
		}
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
