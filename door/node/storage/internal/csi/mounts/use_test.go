package mounts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestUse checks that a driver's last report is kept until a report fails or the volume is unmounted. Impossible
// reports are dropped, and a driver without the capability is not called.
func TestUse(t *testing.T) {
	t.Parallel()
	bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: 100, Available: 60, Used: 30}
	inodes := &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: 9, Available: 6, Used: 3}
	all := usage.Volume{Capacity: 100, Available: 60, AllInodes: 9, InodesFree: 6, Files: usage.Files{Bytes: 30, Inodes: 3}}
	for _, tc := range []struct {
		name    string
		volume  claims.Request
		reports []*csi.VolumeUsage
		silent  bool
		want    usage.Volume
		log     string
	}{
		{name: "files", volume: persistent("u1", false), reports: []*csi.VolumeUsage{bytes, inodes}, want: all},
		{name: "a device", volume: persistent("u1", true), reports: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 7}},
			want: usage.Volume{Capacity: 7}},
		{name: "inline", volume: inline("u1"), reports: []*csi.VolumeUsage{bytes, inodes, {Total: 3}}, want: all},
		{name: "no statistics", volume: persistent("u1", false), log: "reports no size"},
		{name: "negative", volume: persistent("u1", false), reports: []*csi.VolumeUsage{bytes, {Available: -1}}, log: "-1 available"},
		{name: "no capability", volume: persistent("u1", false), reports: []*csi.VolumeUsage{bytes}, silent: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx := testdeadline.Context(t, 5*time.Second)
			w := newWorld(t, storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{"Persistent", "Ephemeral"}})
			w.facts.Stats = !tc.silent
			w.driver.SetUsage(tc.reports...)
			if _, err := w.Mount(ctx, tc.volume); err != nil {
				t.Fatal(err)
			}
			name := tc.volume.Volume
			w.tend(ctx)
			if use, known := w.Use("u1", name); use != tc.want || known != (tc.want.Capacity > 0) || !strings.Contains(w.logged(), tc.log) {
				t.Errorf("%+v, %t; log: %s", use, known, w.logged())
			}
			w.driver.Set(func(_ context.Context, call string) error {
				if call == "stats" {
					return status.Error(codes.Internal, "no word")
				}
				return nil
			}, nil)
			w.tend(ctx)
			if use, known := w.Use("u1", name); known || tc.silent == strings.Contains(w.logged(), "no word") {
				t.Errorf("after a failed request: %+v; log: %s", use, w.logged())
			}
			w.driver.Set(nil, nil)
			w.tend(ctx)
			if err := w.Unmount(ctx, "u1", name); err != nil {
				t.Error(err)
			}
			w.tend(ctx)
			if use, known := w.Use("u1", name); known {
				t.Errorf("after the unmount: %+v", use)
			}
			w.left()
		})
	}
}

// TestAbsent checks that a volume is absent unless it is mounted. A volume without a driver is not absent.
func TestAbsent(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	q := persistent("u1", false)
	absent := func(when string, want bool) {
		t.Helper()
		if got := w.Absent("u1", "v"); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	mount := func() {
		t.Helper()
		if _, err := w.Mount(ctx, q); err != nil {
			t.Error(err)
		}
	}
	unmounted := func() {
		t.Helper()
		if err := unix.Unmount(w.list()[0].targetPath(), 0); err != nil {
			t.Error(err)
		}
		w.driver.Reboot()
	}
	absent("before", false)
	w.driver.Set(func(context.Context, string) error { return status.Error(codes.Internal, "no") }, nil)
	if _, err := w.Mount(ctx, q); err == nil {
		t.Error("mounted")
	}
	absent("not mounted yet", true)
	w.mounts(q)
	mount()
	absent("mounted", false)
	w.open()
	absent("in the next process", false)
	unmounted()
	absent("unmounted outside", true)
	w.reboot()
	absent("after a boot", true)
	mount()
	absent("mounted again", false)
	w.spoil("u1", func(string) string { return "" })
	w.open()
	absent("not known", true)
	mount()
	if err := w.Unmount(ctx, "u1", "v"); err != nil {
		t.Error(err)
	}
	absent("unmounted", false)
	w.left()
}
