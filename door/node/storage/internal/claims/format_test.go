package claims

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDisk checks that a blank device is formatted, a device with ext4 is used, and any other is refused.
func TestDisk(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	superblock := func(disk []byte) { disk[1024+56], disk[1024+57] = 0x53, 0xef }
	for name, tt := range map[string]struct {
		disk      func([]byte)
		change    func(*record)
		formatted bool
		says      string // the error; empty if the pod gets the disk
	}{
		"blank":         {func([]byte) {}, func(*record) {}, true, ""},
		"ext4":          {superblock, func(*record) {}, false, ""},
		"ext4 by name":  {superblock, func(r *record) { r.PV.Spec.Local.FSType = new("ext4") }, false, ""},
		"read-only":     {superblock, func(r *record) { r.ReadOnly = true }, false, ""},
		"other begin":   {func(d []byte) { d[0] = 1 }, func(*record) {}, false, "must be blank or have ext4"},
		"other end":     {func(d []byte) { d[size-1] = 1 }, func(*record) {}, false, "must be blank or have ext4"},
		"other type":    {func([]byte) {}, func(r *record) { r.PV.Spec.Local.FSType = new("xfs") }, false, `file system "xfs" of`},
		"blank to read": {func([]byte) {}, func(r *record) { r.ReadOnly = true }, false, "in read-only mode"},
		"half made":     {func(d []byte) { d[4096] = 1 }, func(*record) {}, false, "must be blank or have ext4"},
		"blank now":     {func([]byte) {}, func(r *record) { r.Place = &Place{} }, false, "is blank, but had ext4"},
		"ext4 still":    {superblock, func(r *record) { r.Place = &Place{} }, false, ""},
		"not there":     {nil, func(*record) {}, false, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			path, disk := filepath.Join(w.data, "disk"), make([]byte, size)
			if tt.disk != nil {
				tt.disk(disk)
				if err := os.WriteFile(path, disk, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			v := w.open(t).Of(w.pod, w.dir)
			w.pv.Spec.Local.Path = path
			r := record{PV: w.pv}
			tt.change(&r)
			place, err := v.disk(t.Context(), r)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want %q", err, tt.says)
				}
			} else if want := (Place{Path: path, Disk: true, ReadOnly: r.ReadOnly}); err != nil || place != want {
				t.Errorf("%v, %v, want %v", place, err, want)
			}
			now, err := os.ReadFile(path)
			if err != nil && tt.disk != nil {
				t.Fatal(err)
			}
			if tt.disk != nil && bytes.Equal(now, disk) == tt.formatted {
				t.Errorf("formatted: %t", !tt.formatted)
			}
			if tt.formatted {
				if found, err := signatureAt(t, path); err != nil || found != ext4 {
					t.Errorf("formatted: %q, %v", found, err)
				}
			}
		})
	}
}

// TestFormattedOnce checks that a device that the pod has used is not formatted again before a later VM, even if it is
// blank. A device with its file system is accepted again.
func TestFormattedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := filepath.Join(w.data, "disk")
	if err := os.WriteFile(path, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r := record{PV: w.pv}
	r.PV.Spec.Local.Path = path
	mount := func() error {
		v := w.open(t).Of(w.pod, w.dir)
		if had, is := v.known()["v"]; is {
			r = had
		}
		place, err := v.disk(t.Context(), r)
		if err != nil {
			return err
		}
		r.Place = &place
		return v.save("v", r)
	}
	if err := mount(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, len(written)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := mount(); err == nil || !strings.Contains(err.Error(), "is blank, but had ext4") {
			t.Errorf("a blank device: %v", err)
		}
	}
	if err := os.WriteFile(path, written, 0o600); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); mount() != nil || err != nil || !bytes.Equal(now, written) {
		t.Errorf("the device with its file system: %v", err)
	}
}

// TestUnformatted checks that a device that cannot be formatted is released and tried again.
func TestUnformatted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := filepath.Join(w.data, "disk")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil { // too small for a file system
		t.Fatal(err)
	}
	v := w.open(t).Of(w.pod, w.dir)
	w.pv.Spec.Local.Path = path
	if place, err := v.disk(t.Context(), record{PV: w.pv}); err == nil || !strings.Contains(err.Error(), "mkfs.ext4") {
		t.Errorf("%v, %v", place, err)
	}
	if err := os.Truncate(path, 16<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := v.disk(t.Context(), record{PV: w.pv}); err != nil {
		t.Error(err)
	}
}

// TestSmallDevices checks that a device that is too small for a signature has none.
func TestSmallDevices(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 1079, 1080, 1081, 1082, 1083} {
		path := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := signatureAt(t, path); err != nil || found != "" {
			t.Errorf("%d bytes: %q, %v", size, found, err)
		}
	}
}

// TestJudgedIsFormatted checks that a device that replaces the probed one is not formatted, and that no pod gets it.
func TestJudgedIsFormatted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, other := filepath.Join(w.data, "disk"), filepath.Join(w.data, "other")
	full := make([]byte, 16<<20)
	full[1<<20+1] = 1 // beyond the parts that are read
	if err := errors.Join(os.WriteFile(path, make([]byte, 16<<20), 0o600), os.WriteFile(other, full, 0o600)); err != nil {
		t.Fatal(err)
	}
	k := w.open(t)
	k.devices.read = func(f *os.File) (string, error) {
		found, err := signature(f)
		return found, errors.Join(err, os.Rename(path, path+".judged"), os.Rename(other, path))
	}
	w.pv.Spec.Local.Path = path
	place, err := k.Of(w.pod, w.dir).disk(t.Context(), record{PV: w.pv})
	if err == nil || !strings.Contains(err.Error(), "has changed to another device") {
		t.Errorf("%v, %v", place, err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, full) {
		t.Errorf("the other device was written: %v", err)
	}
	if found, err := signatureAt(t, path+".judged"); err != nil || found != ext4 {
		t.Errorf("the device found blank has %q: %v", found, err)
	}
}

func signatureAt(t *testing.T, path string) (string, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return signature(f)
}
