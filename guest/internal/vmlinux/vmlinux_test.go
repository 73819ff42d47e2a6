package vmlinux_test

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/guest/internal/vmlinux"
)

// kernel returns an ELF file with one note and a banner.
func kernel(t *testing.T, machine elf.Machine, owner string, kind uint32) []byte {
	t.Helper()
	var note bytes.Buffer
	for _, field := range []uint32{uint32(len(owner) + 1), 4, kind} {
		writeBinary(t, &note, field)
	}
	note.WriteString(owner)
	note.Write(make([]byte, 4-len(owner)%4))
	writeBinary(t, &note, uint32(0x1000000))

	var out bytes.Buffer
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	writeBinary(t, &out, elf.Header64{
		Ident:     ident,
		Type:      uint16(elf.ET_EXEC),
		Machine:   uint16(machine),
		Version:   1,
		Phoff:     64,
		Ehsize:    64,
		Phentsize: 56,
		Phnum:     1,
	})
	writeBinary(t, &out, elf.Prog64{Type: uint32(elf.PT_NOTE), Off: 120, Filesz: uint64(note.Len())})
	out.Write(note.Bytes())
	out.WriteString("Linux version %s\x00Linux version 6.1.0-test (builder) #1\x00")
	return out.Bytes()
}

func writeBinary(t *testing.T, out *bytes.Buffer, v any) {
	t.Helper()
	if err := binary.Write(out, binary.LittleEndian, v); err != nil {
		t.Fatal(err)
	}
}

// image packs a kernel as a bzImage with one setup sector.
func image(t *testing.T, kernel []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(kernel); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	const start = 2*512 + 16
	head := make([]byte, start)
	head[0x1f1] = 1
	copy(head[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(head[0x206:], 0x20f)
	binary.LittleEndian.PutUint32(head[0x248:], 16)
	binary.LittleEndian.PutUint32(head[0x24c:], uint32(packed.Len()))
	return slices.Concat(head, packed.Bytes(), []byte("what follows the kernel"))
}

func TestExtract(t *testing.T) {
	want := kernel(t, elf.EM_X86_64, "Xen", 18)
	for name, in := range map[string][]byte{"bzImage": image(t, want), "ELF": want} {
		got, err := vmlinux.Extract(in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: another kernel came out", name)
		}
		if release, err := vmlinux.Release(got); err != nil || release != "6.1.0-test" {
			t.Errorf("%s: release %q, %v", name, release, err)
		}
	}
}

func TestExtractRefuses(t *testing.T) {
	good := image(t, kernel(t, elf.EM_X86_64, "Xen", 18))
	change := func(offset int, b ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[offset:], b)
		return out
	}
	for name, in := range map[string][]byte{
		"nothing":            nil,
		"text":               bytes.Repeat([]byte("text "), 1000),
		"no PVH note":        image(t, kernel(t, elf.EM_X86_64, "Xen", 17)),
		"a note of another":  image(t, kernel(t, elf.EM_X86_64, "GNU", 18)),
		"another machine":    image(t, kernel(t, elf.EM_AARCH64, "Xen", 18)),
		"half a file":        good[:len(good)/2],
		"an old protocol":    change(0x206, 4, 2),
		"a payload outside":  change(0x248, 0xff, 0xff, 0xff, 0xff),
		"an empty payload":   change(0x24c, 0, 0, 0, 0),
		"a payload too long": change(0x24c, 0xff, 0xff, 0xff, 0xff),
		"an unknown packing": change(2*512+16, 'L', 'Z', 'O', 'P'),
		"a truncated ELF":    []byte("\x7fELF"),
	} {
		if _, err := vmlinux.Extract(in); !unusable(err) {
			t.Errorf("%s: %v, want an unusable kernel", name, err)
		}
	}
	if _, err := vmlinux.Release([]byte("Linux version %s")); !unusable(err) {
		t.Errorf("Release of a kernel without one: %v", err)
	}
}

func unusable(err error) bool {
	return err != nil && strings.Contains(err.Error(), "not a usable kernel image")
}
