package convert

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/oci"
)

func TestBoot(t *testing.T) {
	kernel, initrd := File{Kind: Kernel, Path: "/boot/k", SHA256: "aa", SHA512: "bb"}, File{Kind: Initrd, Path: "/boot/i", SHA256: "cc"}
	o := defaults()
	o.Allowed = []File{kernel, initrd, {Kind: Image, Path: "/boot/unchecked"}}
	const kata = "io.katacontainers.config.hypervisor."
	for fields, want := range map[string]struct {
		boot Boot
		says string
	}{
		``: {},
		`"annotations":{"io.bulkhead.kernel":"/boot/k","io.bulkhead.kernel-sha256":"aa"}`: {
			boot: Boot{Kernel: &kernel},
		},
		`"annotations":{"` + kata + `kernel":"/boot/k","` + kata + `kernel_hash":"bb"}`: {
			boot: Boot{Kernel: &kernel},
		},
		`"annotations":{"` + kata + `initrd":"/boot/i","` + kata + `initrd_hash":"cc","io.katacontainers.asset_hash_type":"sha256"}`: {
			boot: Boot{Initrd: &initrd},
		},
		`"vm":{"kernel":{"path":"/boot/k","initrd":"/boot/i"}}`: {
			boot: Boot{Kernel: &kernel, Initrd: &initrd},
		},
		`"annotations":{"io.bulkhead.kernel":"/boot/k"}`: {
			says: "io.bulkhead.kernel-sha256",
		},
		`"annotations":{"io.bulkhead.kernel":"/boot/k","io.bulkhead.kernel-sha256":"AA"}`: {
			says: "io.bulkhead.kernel-sha256",
		},
		`"annotations":{"io.bulkhead.kernel":"/boot/../boot/k","io.bulkhead.kernel-sha256":"aa"}`: {
			says: "io.bulkhead.kernel",
		},
		`"annotations":{"io.bulkhead.kernel":"/boot/i","io.bulkhead.kernel-sha256":"cc"}`: {
			says: "io.bulkhead.kernel",
		},
		`"annotations":{"io.bulkhead.kernel-sha256":"aa"}`: {
			says: "io.bulkhead.kernel-sha256",
		},
		`"annotations":{"` + kata + `initrd":"/boot/i","` + kata + `initrd_hash":"cc"}`: {
			says: kata + "initrd_hash",
		},
		`"annotations":{"` + kata + `initrd":"/boot/i","` + kata + `initrd_hash":"","io.katacontainers.asset_hash_type":"md5"}`: {
			says: kata + "initrd_hash",
		},
		`"annotations":{"io.bulkhead.image":"/boot/unchecked","io.bulkhead.image-sha256":""}`: {
			says: "io.bulkhead.image",
		},
		`"vm":{"kernel":{"path":""},"image":{"path":"/boot/unchecked"}}`: {
			says: "vm.image.path",
		},
		`"vm":{"kernel":{"path":"/boot/i"}}`: {
			says: "vm.kernel.path",
		},
		`"annotations":{"io.bulkhead.kernel":"/boot/k","io.bulkhead.kernel-sha256":"aa","io.kubernetes.cri-o.SandboxID":"p"}`: {
			says: "has booted",
		},
	} {
		p, err := Decode(with(t, fields), o)
		if want.says != "" {
			known := errors.Is(err, oci.ErrNotSupported) || errors.Is(err, oci.ErrInvalid)
			if !known || !strings.Contains(err.Error(), want.says) {
				t.Errorf("%s: %v", fields, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		if diff := cmp.Diff(want.boot, p.Boot); diff != "" || len(p.Ignored) > 0 {
			t.Errorf("%s: notes %v %s", fields, p.Ignored, diff)
		}
	}
}

func TestVolumes(t *testing.T) {
	o := defaults()
	o.Host = world{"/srv/file": {Type: Regular}}
	o.Allowed = []File{
		{Kind: Volume, Path: "/srv/a b"}, {Kind: Volume, Path: "/srv/file"}, {Kind: Volume, Path: "/missing"}, {Kind: Kernel, Path: "/k"},
	}
	set := func(text string) string { return `"annotations":{"io.bulkhead.volumes":"` + text + `"}` }
	p, err := Decode(with(t, set(`one:/srv/a\\ b two:/srv/a\\ b`)), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Trees) != 3 || p.Trees[2].Source != "/srv/a b" || p.Trees[2].Destination != "/run/bulkhead/volumes/two" ||
		p.Guest.Mounts[0].Source != "/1" || p.Guest.Mounts[1].Destination != "/run/bulkhead/volumes/two" {
		t.Errorf("trees %+v, mounts %+v", p.Trees, p.Guest.Mounts)
	}
	for text, class := range map[string]error{
		`a:/srv`: oci.ErrNotSupported, `a:/k`: oci.ErrNotSupported, `a:/srv/a\\ b a:/srv/a\\ b`: oci.ErrInvalid, `a/b:/srv/a\\ b`: oci.ErrInvalid,
		`a`: oci.ErrInvalid, `a:/srv/file`: oci.ErrInvalid, `a:/missing`: os.ErrNotExist,
	} {
		if _, err := Decode(with(t, set(text)), o); !errors.Is(err, class) || !strings.Contains(err.Error(), "io.bulkhead.volumes") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAnnotations: none reaches the guest, and only unknown ones of ours are noted.
func TestAnnotations(t *testing.T) {
	p := plan(t, `"annotations":{"io.bulkhead.all-devices":"true","io.bulkhead.cpu":"2","io.katacontainers.config.hypervisor.path":"/q",
		"run.oci.handler":"krun","io.kubernetes.cri.image-name":"x","io.bulkhead.strict":"false","k":"v"}`)
	var notes []string
	for _, note := range p.Ignored {
		notes = append(notes, note.Field)
	}
	want := []string{
		"annotations.io.bulkhead.all-devices", "annotations.io.bulkhead.cpu", "annotations.io.katacontainers.config.hypervisor.path",
	}
	if !slices.Equal(notes, want) || len(p.Guest.Annotations) != 1 || len(p.Annotations) != 7 {
		t.Errorf("notes %q, guest %v", notes, p.Guest.Annotations)
	}
	_, err := Decode(with(t, `"annotations":{"io.bulkhead.strict":"true","io.bulkhead.cpu":"2"}`), defaults())
	if !errors.Is(err, oci.ErrNotSupported) || !strings.Contains(err.Error(), "io.bulkhead.cpu") {
		t.Error(err)
	}
}
