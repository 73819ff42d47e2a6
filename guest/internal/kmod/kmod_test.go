package kmod_test

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/guest/internal/kmod"
)

const release = "6.1.0-test"

// tree creates a module directory from each module's .modinfo entries by path.
func tree(t *testing.T, builtin string, modules map[string][]string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "modules.builtin"), []byte(builtin))
	writeFile(t, filepath.Join(dir, "kernel", "README"), []byte("not a module"))
	for path, info := range modules {
		data := module(t, append([]string{"vermagic=" + release + " SMP preempt"}, info...))
		if strings.HasSuffix(path, ".gz") {
			var out bytes.Buffer
			z := gzip.NewWriter(&out)
			if _, err := z.Write(data); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			data = out.Bytes()
		}
		writeFile(t, filepath.Join(dir, path), data)
	}
	return dir
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// module returns the smallest ELF file with a .modinfo section.
func module(t *testing.T, info []string) []byte {
	t.Helper()
	names, body := "\x00.modinfo\x00.shstrtab\x00", strings.Join(info, "\x00")+"\x00"
	const head = 64
	var out bytes.Buffer
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	for _, part := range []any{
		elf.Header64{
			Ident: ident, Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1,
			Shoff: uint64(head + len(names) + len(body)), Ehsize: head, Shentsize: 64, Shnum: 3, Shstrndx: 2,
		},
		[]byte(names), []byte(body),
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: uint64(head + len(names)), Size: uint64(len(body))},
		elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: head, Size: uint64(len(names))},
	} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func TestOrder(t *testing.T) {
	dir := tree(t, "kernel/fs/ext4/ext4.ko\nkernel/crypto/crc32c-generic.ko\n", map[string][]string{
		"kernel/a/virtio.ko":        {"depends=virtio-ring"},
		"kernel/a/virtio_ring.ko":   nil,
		"kernel/b/virtio_net.ko.gz": {"depends=virtio,net_failover"},
		"kernel/b/net_failover.ko":  {"depends="},
		"kernel/c/erofs.ko":         {"softdep=pre: crc32c lz4-late post: never", "depends=ext4"},
		"kernel/c/lz4_late.ko":      nil,
		"kernel/c/never.ko":         nil,
		"updates/dkms/virtio.ko":    {"depends=no_such"},
		"kernel/d/loop1.ko":         {"depends=loop2"},
		"kernel/d/loop2.ko":         {"depends=loop1"},
		"kernel/d/orphan.ko":        {"depends=no_such"},
		"kernel/d/foreign.ko":       {"vermagic=5.10 SMP"},
		"kernel/d/debug.ko.debug":   nil,
	})
	d, err := kmod.Open(dir, release)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		ask   []string
		want  []string
		fault string
	}{
		{
			name: "dependencies come first and once", ask: []string{"virtio_net", "virtio"},
			want: []string{"virtio_ring", "virtio", "net_failover", "virtio_net"},
		},
		{name: "what is built in is left out", ask: []string{"ext4", "crc32c_generic"}},
		{name: "both spellings", ask: []string{"virtio-ring"}, want: []string{"virtio_ring"}},
		{name: "soft dependencies that exist", ask: []string{"erofs"}, want: []string{"lz4_late", "erofs"}},
		{name: "neither module nor built in", ask: []string{"vfio"}, fault: "module vfio: neither a module nor built in"},
		{name: "a dependency missing", ask: []string{"orphan"}, fault: "neither a module nor built in"},
		{name: "a circle", ask: []string{"loop1"}, fault: "module loop1: modules depend on each other"},
		{name: "of another kernel", ask: []string{"foreign"}, fault: `modules are for another kernel: it is for "5.10`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			modules, err := d.Order(tc.ask...)
			if (err == nil) != (tc.fault == "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
				t.Fatalf("Order: got %v, want %q", err, tc.fault)
			}
			var got []string
			for _, m := range modules {
				got = append(got, m.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOpenWithoutModules(t *testing.T) {
	if _, err := kmod.Open(t.TempDir(), release); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open = %v, want os.ErrNotExist", err)
	}
}

func TestUnsigned(t *testing.T) {
	const mark = "~Module signature appended~\n"
	info := func(size uint32) string {
		return string(binary.BigEndian.AppendUint32(make([]byte, 8), size))
	}
	for name, tc := range map[string]struct{ in, want string }{
		"signed":             {"module" + "sig" + info(3) + mark, "module"},
		"unsigned":           {"module", "module"},
		"a size too large":   {"module" + info(7) + mark, "module" + info(7) + mark},
		"a size of 4 GiB":    {"module" + info(1<<32-1) + mark, "module" + info(1<<32-1) + mark},
		"nothing but a mark": {mark, mark},
		"empty":              {"", ""},
	} {
		if got := string(kmod.Unsigned([]byte(tc.in))); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
